#include "core/device/meter.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/device/collective.h"

namespace trainer {

double MeterCounts::flops() const {
  double sum = 0;
  for (const auto& [op, count] : ops) sum += count.flops;
  return sum;
}

void MeterStream::wait(Event) {
  ++counts_.commands[size_t(lane_)];
  counts_.argument_bytes[size_t(lane_)] += sizeof(Event);
}
void MeterStream::charge(std::string_view op, Cost cost, size_t scratch) {
  OpCount& c = counts_.ops[std::string(op)];
  ++c.calls;
  c.flops += cost.flops;
  c.bytes += cost.bytes;
  counts_.scratch[size_t(lane_)] = std::max(counts_.scratch[size_t(lane_)], scratch);
}
void MeterStream::submit(void (*)(Stream&, const void*), const void*, size_t bytes) {
  ++counts_.commands[size_t(lane_)];
  counts_.argument_bytes[size_t(lane_)] += bytes;
}

namespace {
template <size_t... I>
std::array<MeterStream, kLanes> make_streams(MeterCounts& counts, std::index_sequence<I...>) {
  return {MeterStream(Lane(I), counts)...};
}
}  // namespace

MeterDevice::MeterDevice() : streams_(make_streams(counts_, std::make_index_sequence<kLanes>())) {}

// What a collective puts into a lane's ring, at most: a pointer, its tensors, its peers.
constexpr size_t kCommandBytes = 512;

void MeterComm::count(Stream& stream, const What& w) {
  if (size_ == 1) return;  // a group of one does nothing
  stream.submit(nullptr, nullptr, kCommandBytes);
  const std::string what = fmt::format("{} {}", w.op, name_of(w.full.dtype));
  CollectiveCount& c = counts_.collectives[label_.axis + " " + what];
  ++c.count;
  c.bytes += double(w.full.bytes());
  c.moved += w.moved;
  counts_.trace += fmt::format("{} {} {} {}\n", label_.name, what, w.full.elements(), w.peer);
}
void MeterComm::all_gather(Stream& s, Tensor, Tensor full) {
  count(s, {"all_gather", full, moved_by_gather(int64_t(full.bytes()), size_)});
}
void MeterComm::reduce_scatter(Stream& s, Tensor full, Tensor) {
  count(s, {"reduce_scatter", full, moved_by_scatter(int64_t(full.bytes()), size_)});
}
void MeterComm::all_reduce(Stream& s, Tensor t, Reduce) {
  count(s, {"all_reduce", t, moved_by_all_reduce(t.elements(), t.dtype, size_, rank_)});
}
// How many rows travel is known on the device only.
void MeterComm::all_to_all_v(Stream& s, Tensor from, Tensor, Tensor, Tensor, int64_t) {
  count(s, {"all_to_all", from});
}
void MeterComm::send(Stream& s, Tensor t, int to) { count(s, {"send", t, 0, to}); }
void MeterComm::recv(Stream& s, Tensor t, int from) { count(s, {"recv", t, int64_t(t.bytes()), from}); }
void MeterComm::barrier(Stream& s) { count(s, {"barrier", {}}); }

}  // namespace trainer
