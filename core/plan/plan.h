// The step of one rank, written down before it runs.
//
// A plan is a list of verbs; `bind` adds what each reads, writes, adds to and frees; `layout` gives bytes; `link` adds waits;
// `verify` proves the result. An engine issues it, a simulator clocks it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/device/comm.h"
#include "core/model/param.h"
#include "core/plan/mesh.h"
#include "core/spec/run_spec.h"

namespace trainer {

struct Model;
class Stages;

// begin writes Control and zeroes Outcome. norm adds a bucket's |g|^2; agree sums Outcome over the world (evaluate has one too); tie
// sums a shared parameter's gradient over the stages that hold it, once, after the last reduce.
// Where a step updates before the world agrees (post-validation): `cast` copies Outcome to a ballot, `vote` sums it over the world on a
// lane of its own, and so finds the verdict; `trust` makes Control from the first ballot (the tokens) and the verdict so far; `keep`
// sets aside what the bucket's update changes, and `undo` brings it back.
enum class Verb : uint8_t {
  begin, load, forward, recompute, backward_input, backward_weight, send_act, recv_act, send_grad, recv_grad,
  gather, release, reduce, tie, norm, agree, cast, vote, trust, keep, update, undo, snapshot
};
std::string_view name_of(Verb);
using InstrId = uint32_t;
using SlotId = uint32_t;

// A border has one name: act(m, b) is the input of block b and the output of block b - 1; d_act(m, b) its gradient. `work` slots are
// named by (m, b, index). weight, gradient, reduced and state are named by bucket (in `block`); a state slot's index is its Role, or
// kStaging + Role, or kPrevious + Role. A ballot's index is a Ballot. A batch slot's index is its BatchField. A reduce's copy of a bucket is a `work` slot of no micro-batch.
enum class SlotClass : uint8_t { batch, act, d_act, saved, stash, work, weight, gradient, reduced, state, control, outcome, ballot, verdict };

// A slot is written, used and freed once: what comes back (weights gathered again, the next micro-batch's gradient, what is
// recomputed) is another `life`, hence another slot. So a pass may reorder instructions without confusing two lives.
struct Slot {
  SlotClass kind;
  int16_t microbatch = -1, block = -1, index = -1, life = 0;
  DType dtype = DType::f32;
  Shape shape;
  auto name() const { return std::tuple(kind, microbatch, block, index, life); }
  size_t bytes() const { return size_t(shape.elements()) * size_of(dtype); }
};

// `add` reads and writes. `free` is bookkeeping: the uses before it are what the next owner of the bytes waits for.
enum class Access : uint8_t { read, write, add, free };
struct Use {
  SlotId slot = 0;
  Access access = Access::read;
  size_t offset = 0;   // in the arena; filled by layout
};

// Indices: microbatch of the step; chunk local to the stage; block and bucket global; peer a stage; slice of a snapshot (a Role), or a
// Ballot.
struct Instr {
  Verb verb;
  Lane lane = Lane::compute;
  int16_t microbatch = -1, chunk = -1, block = -1, bucket = -1, peer = -1, slice = -1;
  uint32_t fresh = 0;                       // bit i: the block's params[i] receives its first contribution of the gradient's life
  std::array<uint32_t, 2> waits{}, uses{};  // ranges of Plan::edges and Plan::uses
  LaneMask seam = 0;                        // lanes of which everything issued before this plan must be over, whichever plans those were
};

enum class Cut : uint8_t { flat, whole };   // flat: equal slices; whole: one owner per matrix (Muon)

// Elements of a bucket: begin[i] is where params[i] starts; they lie back to back. `size` without, `padded` with what makes it divide
// by the shard axis. tied: held by two stages; their reduced gradients are summed over Axis::tied, rank 0 of which counts the norm and
// writes the snapshot.
struct Bucket {
  std::vector<ParamId> params;
  std::vector<int64_t> begin;
  int64_t size = 0, padded = 0;
  int64_t decayed = 0;  // elements of parameters that decay: they come first
  Axis shard = Axis::shard, replica = Axis::replica;
  Cut cut = Cut::flat;
  DType reduce = DType::f32;
  bool tied = false;
};

struct Plan {
  std::vector<Instr> code;
  std::vector<InstrId> edges;
  std::vector<Use> uses;
  std::vector<Slot> slots;
};

// evaluate: the train schedule's forwards. train_ahead: train, but its update does not wait for the world's verdict, and the next
// step does not either; undo takes the newest update back.
enum class StepKind : uint8_t { train, train_and_snapshot, snapshot, evaluate, train_ahead, undo };
std::string_view name_of(StepKind);
constexpr bool trains(StepKind k) {
  return k == StepKind::train || k == StepKind::train_and_snapshot || k == StepKind::train_ahead;
}
constexpr bool computes(StepKind k) { return k != StepKind::snapshot && k != StepKind::undo; }
// train_and_snapshot copies the state as the step found it, under its own forwards: its slices belong to the step before.
struct PlanKey {
  StepKind kind = StepKind::train;
  int microbatches = 1;      // a batch ramp is another key
  int64_t seq_len = 0;
  bool operator==(const PlanKey&) const = default;
};

// weight: what blocks read (compute dtype). master exists where compute is bf16. In fp32 `weight` is the master itself.
enum class Role : uint8_t { weight, master, moment1, moment2 };
inline constexpr int kRoles = 4;
// Copies of this rank's part of a role, in f32: what a snapshot writes out, and what the newest update found.
inline constexpr int16_t kStaging = 16, kPrevious = 32;
// Of a step that updates ahead: what the update must know of the world, and what may take it back.
enum class Ballot : uint8_t { tokens, outcome };
inline constexpr int kBallots = 2;
struct StateSlot {           // this rank's part of a flat bucket, in elements
  int16_t bucket = 0;
  int16_t index = 0;         // Role, or kStaging + Role, or kPrevious + Role
  DType dtype = DType::f32;
  size_t offset = 0, bytes = 0;
  int64_t begin = 0, end = 0;
};

struct Program {             // state outlives the plans: snapshot, reshard and restart touch only it
  std::vector<Bucket> buckets;
  std::vector<StateSlot> state;                       // a function of model, mesh and ZeRO stage only
  std::vector<std::pair<PlanKey, Plan>> plans;        // any may follow any: the seam masks are computed over all of them at once
  std::array<size_t, kLanes> scratch{}, scratch_offset{};    // the meter's maxima, in the arena
  std::array<size_t, kLanes> ring_bytes{};            // the meter's maxima of command bytes per lane and plan
  size_t control_offset = 0, outcome_offset = 0, arena_bytes = 0;
  std::array<size_t, kBallots> ballot_offset{};      // they and the verdict: where some plan updates ahead
  size_t verdict_offset = 0;
  uint64_t hash = 0;         // of text and collective trace of the programs of all ranks: one number, compared before the first collective
};

struct PlanContext {
  const RunSpec& spec;
  const Mesh& mesh;
  const Model& model;
  PlanKey key;
  const Stages& stages;
};
using CodePass = std::vector<Instr> (*)(std::vector<Instr>, const PlanContext&, const Program&);

// Bytes of the arena by what they hold. activations, staging and gradients that reuse bytes count their peak.
struct ArenaBytes {
  size_t weights = 0, master = 0, gradients = 0, moments = 0, activations = 0, staging = 0, scratch = 0, control = 0;
};

struct Span {  // when an instruction ran, in seconds: on a clock, or in a run
  double begin = 0, end = 0;
};

// Small questions that several passes ask.
int bucket_of(const Program&, ParamId);                                      // -1: none
const StateSlot* find_state(const Program&, int bucket, int index);          // nullptr: not on this rank
const Plan* find_plan(const Program&, const PlanKey&);
bool updates_ahead(const Program&);                                          // one of its plans does: the state has kPrevious slots

}  // namespace trainer
