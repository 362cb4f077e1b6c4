#include "parallel/trace.h"

#include <fmt/format.h>

namespace trainer {
namespace {

constexpr double kMicroseconds = 1e6;

// "forward 3.1 block 5": of micro-batch 3, chunk 1.
std::string label_of(const Instr& i) {
  std::string text(name_of(i.verb));
  if (i.microbatch >= 0) text += fmt::format(" {}", i.microbatch);
  if (i.chunk > 0) text += fmt::format(".{}", i.chunk);
  if (i.block >= 0) text += fmt::format(" block {}", i.block);
  if (i.bucket >= 0) text += fmt::format(" bucket {}", i.bucket);
  return text;
}

// Of the slots that come and go.
size_t bytes_of(const Plan& plan, const Instr& i, Access access) {
  size_t bytes = 0;
  for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u) {
    const Slot& s = plan.slots[plan.uses[u].slot];
    if (plan.uses[u].access == access && s.kind < SlotClass::state) bytes += s.bytes();
  }
  return bytes;
}

std::string memory_event(int rank, double seconds, size_t bytes) {
  return fmt::format(R"({{"name":"live bytes","ph":"C","pid":{},"ts":{:.3f},"args":{{"bytes":{}}}}})", rank,
                     seconds * kMicroseconds, bytes);
}

std::string name_event(const char* what, int rank, int lane, const std::string& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, rank, lane, name);
}

}  // namespace

std::string trace_events(const Mesh& rank, const Plan& plan, std::span<const Span> spans) {
  const int pid = rank.rank();
  std::string events = name_event("process_name", pid, 0, fmt::format("rank {}, stage {}", pid, rank.stage));
  LaneMask lanes = 0;
  for (const Instr& i : plan.code) lanes |= LaneMask(1u << unsigned(i.lane));
  for (int l = 0; l < kLanes; ++l)
    if (lanes >> l & 1) events += ",\n" + name_event("thread_name", pid, l, std::string(name_of(Lane(l))));
  size_t live = 0;
  for (size_t id = 0; id < plan.code.size(); ++id) {
    const Instr& i = plan.code[id];
    live += bytes_of(plan, i, Access::write);
    if (i.lane == Lane::compute && i.block >= 0) events += ",\n" + memory_event(pid, spans[id].begin, live);
    live -= bytes_of(plan, i, Access::free);
    const double length = spans[id].end - spans[id].begin;
    if (length <= 0) continue;  // bookkeeping
    events += fmt::format(
        ",\n"
        R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
        label_of(i), name_of(i.verb), pid, int(i.lane), spans[id].begin * kMicroseconds, length * kMicroseconds);
  }
  return events;
}

void write_trace(std::ostream& out, const std::vector<std::string>& events_of_ranks) {
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (size_t r = 0; r < events_of_ranks.size(); ++r) out << (r ? ",\n" : "") << events_of_ranks[r];
  out << "\n]}\n";
}

}  // namespace trainer
