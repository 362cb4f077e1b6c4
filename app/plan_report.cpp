#include "app/plan_report.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/journal.h"
#include "core/plan/arena_bytes.h"

namespace trainer {
namespace {

// held: elements of logical tensors that this rank computes with (its stage, its slice of tp), padding excluded.
// updated: elements of the buffers that hold them which it updates (its shard under ZeRO), padding of slices included.
struct RankParameters {
  int64_t held = 0, updated = 0;
};
RankParameters parameters_of_rank(const Planned& p) {
  RankParameters n;
  for (size_t b = 0; b < p.program.buckets.size(); ++b) {
    const StateSlot* moment = find_state(p.program, int(b), int(Role::moment1));
    if (!moment) continue;
    const Bucket& bucket = p.program.buckets[b];
    for (ParamId id : bucket.params)
      for (const Param::Piece& piece : p.model.params[id].pieces) {
        int64_t elements = 1;
        for (int d = 0; d < piece.logical.rank; ++d) elements *= piece.to.hi[size_t(d)] - piece.to.lo[size_t(d)];
        n.held += elements;
      }
    n.updated += std::min(moment->end, bucket.size) - std::min(moment->begin, bucket.size);
  }
  return n;
}

size_t machine_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemTotal:")) return size_t(std::stoull(line.substr(9))) * 1024;
  return 0;
}
bool fits(const Program& program) { return program.arena_bytes + kAllowanceBytes <= machine_memory(); }

struct Collective {
  std::string group, op, dtype;
};
Collective collective_of(const std::string& what) {  // "dp all_reduce f32"
  const size_t first = what.find(' '), last = what.rfind(' ');
  return {what.substr(0, first), what.substr(first + 1, last - first - 1), what.substr(last + 1)};
}

}  // namespace

void print_plan_json(const PlannedWorld& w, const ClockedStep& step, const Machine& machine) {
  const Planned& p = w.rank;
  using Json = nlohmann::ordered_json;
  const ArenaBytes b = arena_bytes(p.program);
  const FlopsPerToken flops = flops_per_token(p.spec.model, p.spec.data.seq_len);
  Json collectives = Json::array();
  const MeterCounts counts = step_counts(p);
  for (const auto& [what, count] : counts.collectives) {
    const Collective c = collective_of(what);
    collectives.push_back(
        {{"axis", c.group}, {"op", c.op}, {"dtype", c.dtype}, {"bytes", count.bytes}, {"count", count.count}});
  }
  Json stages = Json::array();
  for (size_t s = 0; s < w.stages.size(); ++s)
    stages.push_back({{"arena", w.stages[s].arena_bytes}, {"busy_seconds", step.timeline.busy[s]}});
  const RankParameters mine = parameters_of_rank(p);
  const Json out{{"parameters", parameter_count(p.model)},
                 {"parameters_of_rank", {{"held", mine.held}, {"updated", mine.updated}}},
                 {"world", p.mesh.size()},
                 {"mesh", {{"pp", p.mesh.pp}, {"dp", p.mesh.dp}, {"cp", p.mesh.cp}, {"tp", p.mesh.tp}}},
                 {"arena_bytes", p.program.arena_bytes},
                 {"allowance_bytes", kAllowanceBytes},
                 {"bytes",
                  {{"weights", b.weights},
                   {"master", b.master},
                   {"gradients", b.gradients},
                   {"moments", b.moments},
                   {"activations", b.activations},
                   {"staging", b.staging},
                   {"scratch", b.scratch + b.control}}},
                 {"flops_per_token",
                  {{"simple", flops.simple}, {"exact_full", flops.exact_full}, {"exact_causal", flops.exact_causal}}},
                 {"collectives", collectives},
                 {"machine", machine.name},
                 {"makespan_seconds", step.timeline.makespan},
                 {"step_seconds", step.seconds},
                 {"exposed_communication_seconds", step.exposed},
                 {"bubble_rate", step.bubble_rate},
                 {"stages", stages},
                 {"plan_hash", fmt::format("{:016x}", p.program.hash)},
                 {"fits", fits(p.program)}};
  fmt::print("{}\n", out.dump(1));
}

namespace {

// The first and last actions tell how activations rise and fall; all of them are in --json's plan text.
void print_activations(const Planned& p) {
  const PlanKey key = plan_keys(p.spec, p.mesh.dp).front();
  const auto peaks = activation_peaks(*find_plan(p.program, key));
  fmt::print("\nactivations by schedule position ({} micro-batch{} of {} x {} tokens)\n", key.microbatches,
             key.microbatches == 1 ? "" : "es", p.spec.train.micro_batch, key.seq_len);
  for (size_t i = 0; i < peaks.size(); ++i) {
    if (peaks.size() > 8 && i == 4) fmt::print("  ...\n");
    if (peaks.size() > 8 && i >= 4 && i + 4 < peaks.size()) continue;
    fmt::print("  {:<8} micro-batch {:<3} {:>12}\n", peaks[i].forward ? "forward" : "backward", peaks[i].microbatch,
               short_bytes(double(peaks[i].bytes)));
  }
}

// "gather", "12.5 GiB": one line per kind of collective of a training step.
void print_collectives(const Planned& p) {
  const MeterCounts counts = step_counts(p);
  if (counts.collectives.empty()) return;
  fmt::print("\ncollectives of a training step of this rank\n  {:<10} {:<16} {:<6} {:>8} {:>18} {:>12}\n", "group",
             "op", "dtype", "count", "bytes of tensors", "");
  for (const auto& [what, count] : counts.collectives) {
    const Collective c = collective_of(what);
    fmt::print("  {:<10} {:<16} {:<6} {:>8} {:>18.0f} {:>12}\n", c.group, c.op, c.dtype, count.count, count.bytes,
               short_bytes(count.bytes));
  }
}

}  // namespace

namespace {

void print_clock(const PlannedWorld& w, const ClockedStep& step, const Machine& machine) {
  fmt::print("\na step on {} by rooflines: {:.3g} s, of which {:.3g} s is communication that nothing hides\n",
             machine.name, step.seconds, step.exposed);
  if (w.stages.size() == 1) return;
  fmt::print("bubble {:.4f}\n  {:<6} {:>12} {:>12}\n", step.bubble_rate, "stage", "arena", "busy");
  for (size_t s = 0; s < w.stages.size(); ++s)
    fmt::print("  {:<6} {:>12} {:>11.1f}%\n", s, short_bytes(double(w.stages[s].arena_bytes)),
               100 * step.timeline.busy[s] / step.seconds);
}

}  // namespace

void print_plan_table(const PlannedWorld& w, const ClockedStep& step, const Machine& machine) {
  const Planned& p = w.rank;
  const ArenaBytes b = arena_bytes(p.program);
  const FlopsPerToken flops = flops_per_token(p.spec.model, p.spec.data.seq_len);
  fmt::print("parameters      {} ({})\n", parameter_count(p.model), short_number(double(parameter_count(p.model))));
  const RankParameters mine = parameters_of_rank(p);
  if (p.mesh.size() > 1) fmt::print("of this rank    {} held, {} updated\n", mine.held, mine.updated);
  fmt::print("FLOPs a token   {} simple, {} exact_full, {} exact_causal\n", short_number(flops.simple),
             short_number(flops.exact_full), short_number(flops.exact_causal));
  fmt::print("\nbytes of rank {} of {}\n", p.mesh.rank(), p.mesh.size());
  const auto row = [&](const char* name, size_t bytes) {
    if (bytes) fmt::print("  {:<12} {:>18} {:>12}\n", name, bytes, short_bytes(double(bytes)));
  };
  row("weights", b.weights);
  row("master", b.master);
  row("gradients", b.gradients);
  row("moments", b.moments);
  row("activations", b.activations);
  row("staging", b.staging);
  row("scratch", b.scratch);
  row("control", b.control);
  row("arena", p.program.arena_bytes);
  fmt::print("  {:<12} {:>18} {:>12}   for heap, code and libraries\n", "allowance", kAllowanceBytes,
             short_bytes(double(kAllowanceBytes)));
  print_activations(p);
  print_collectives(p);
  print_clock(w, step, machine);
  fmt::print("\nplan hash {:016x}; this machine has {}: {}\n", p.program.hash, short_bytes(double(machine_memory())),
             fits(p.program) ? "it fits" : "it does not fit");
}

}  // namespace trainer
