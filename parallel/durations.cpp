#include "parallel/durations.h"

#include <fmt/ranges.h>

#include <cmath>

#include "core/base/error.h"
#include "core/plan/buckets.h"

namespace trainer {
namespace {

bool in_pipe(Verb v) { return v >= Verb::send_act && v <= Verb::recv_grad; }

// Vendors' data sheets: dense bf16, memory, NVLink in one direction; the latency is a round figure. The core of a Zen 3
// as `trainer bench` measured it (README.md, docs/communication.md), where bf16 is computed in fp32.
constexpr Machine kMachines[] = {
    {"a100", 312e12, 2.0e12, 300e9, 5e-6},
    {"h100", 989e12, 3.35e12, 450e9, 5e-6},
    {"h200", 989e12, 4.8e12, 450e9, 5e-6},
    {"b200", 2250e12, 8e12, 900e9, 5e-6},
    {"zen3-core", 93e9, 13e9, 15.7e9, 2.6e-6},
};

}  // namespace

UniformDurations::UniformDurations(const Stages& stages, const Model& model, const Costs& costs)
    : stages_(stages), costs_(costs) {
  for (int q = 0; q < stages_.positions(); ++q) {
    Halves& halves = halves_.emplace_back();
    for (int b = stages_.blocks(q).first; b < stages_.blocks(q).end; ++b) {
      const BlockLayout l = model.blocks[size_t(b)]->layout();
      halves.inputs += l.has_input_half;
      halves.weights += l.has_weight_half;
    }
  }
}

double UniformDurations::of(const Mesh& rank, const Instr& i) const {
  if (in_pipe(i.verb)) return costs_.comm;
  if (i.verb == Verb::gather || i.verb == Verb::reduce || i.verb == Verb::tie) return costs_.collective;
  if (i.verb == Verb::snapshot) return costs_.snapshot;
  if (i.block < 0) return 0;
  const int q = stages_.position(rank.stage, i.chunk);
  const auto [first, end] = stages_.blocks(q);
  const auto [inputs, weights] = halves_[size_t(q)];
  const double chunks = stages_.shape().chunks;
  switch (i.verb) {
    case Verb::forward: return costs_.f / chunks / (end - first);
    case Verb::recompute: return costs_.recompute / chunks / inputs;
    case Verb::backward_input: return costs_.b / chunks / inputs;
    default: return costs_.w / chunks / weights;
  }
}

const Machine& find_machine(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Machine& m : kMachines) {
    if (m.name == name) return m;
    known.push_back(m.name);
  }
  fail(Exit::usage, "--machine: wanted {}, found {}", fmt::join(known, " | "), name);
}

MachineDurations::MachineDurations(const RunSpec& spec, const Model& model, const Program& program, const Mesh& world,
                                   const Machine& machine)
    : spec_(spec), program_(program), world_(world), machine_(machine), blocks_(block_costs(spec, model)) {
  for (const auto& block : model.blocks) {
    const BlockLayout l = block->layout();
    double& bytes = border_bytes_.emplace_back(0);
    for (const Shape& s : l.in) bytes += double(s.elements()) * double(size_of(l.dtype));
  }
}

double MachineDurations::roof(const Cost& c) const {
  return std::max(c.flops / machine_.flops, c.bytes / machine_.bytes);
}

double MachineDurations::ring(double bytes, int ranks, int rounds) const {
  if (ranks == 1) return 0;
  return rounds * (bytes * (ranks - 1) / ranks / machine_.link_bytes + (ranks - 1) * machine_.latency);
}

double MachineDurations::bucket_bytes(const Instr& i, DType dtype) const {
  return double(program_.buckets[size_t(i.bucket)].padded) * double(size_of(dtype));
}

double MachineDurations::talk(const Instr& i) const {
  switch (i.verb) {
    case Verb::gather: return ring(bucket_bytes(i, compute_dtype(spec_.precision)), world_.shards, 1);
    case Verb::reduce: {
      const double bytes = bucket_bytes(i, program_.buckets[size_t(i.bucket)].reduce);
      if (spec_.parallel.zero == 0) return ring(bytes, world_.dp, 2);
      return ring(bytes, world_.shards, 1) + ring(bytes / world_.shards, world_.dp / world_.shards, 2);
    }
    case Verb::tie: return ring(bucket_bytes(i, gradient_dtype(spec_.precision)) / world_.shards, 2, 2);
    case Verb::agree:
    case Verb::vote: return machine_.latency * 2 * std::ceil(std::log2(world_.size()));
    default: return border_bytes_[size_t(i.block)] / machine_.link_bytes + machine_.latency;
  }
}

double MachineDurations::of(const Mesh&, const Instr& i) const {
  // A shard's elements, read and written: weight, master, moments and gradient.
  constexpr double kUpdateBytes = 32, kNormBytes = 4, kCopyBytes = 8, kSavedRoles = 3;
  const auto state = [&](double bytes_of_element) {
    return double(program_.buckets[size_t(i.bucket)].padded) / world_.shards * bytes_of_element / machine_.bytes;
  };
  switch (i.verb) {
    case Verb::forward: return roof(blocks_[size_t(i.block)].forward);
    case Verb::recompute: return roof(blocks_[size_t(i.block)].recompute);
    case Verb::backward_input: return roof(blocks_[size_t(i.block)].backward_input);
    case Verb::backward_weight: return roof(blocks_[size_t(i.block)].backward_weight);
    case Verb::norm: return state(kNormBytes);
    case Verb::update: return state(kUpdateBytes);
    case Verb::keep:
    case Verb::undo: return state(kCopyBytes * kSavedRoles);
    case Verb::snapshot: return state(kCopyBytes);
    case Verb::begin:
    case Verb::cast:
    case Verb::trust:
    case Verb::load:
    case Verb::release: return 0;
    default: return silent_ ? 0 : talk(i);
  }
}

}  // namespace trainer
