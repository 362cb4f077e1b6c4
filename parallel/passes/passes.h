// From a schedule to the list of one rank: each pass is one concern, rewrites the list, and is a file of its name.
#pragma once
#include <span>

#include "core/model/block.h"
#include "core/plan/stages.h"

namespace trainer {

using Code = std::vector<Instr>;

// The table: passes in their order.
std::span<const CodePass> code_passes();

// Schedule -> begin, loads, forwards, backward halves. A whole backward goes block by block.
Code expand(Code, const PlanContext&, const Program&);
// What forward dropped is restored before the first backward half that needs it: a block at a time (selective), or a
// layer (full).
Code recompute(Code, const PlanContext&, const Program&);
// Sends and receives at the borders of chunks.
Code pipe(Code, const PlanContext&, const Program&);
// ZeRO-3: a bucket's weights come and go; the next one's are already on their way.
Code gather(Code, const PlanContext&, const Program&);
// Gradients leave: at their last contribution, or (ZeRO-2, 3) once per micro-batch.
Code reduce(Code, const PlanContext&, const Program&);
// Tie, norm, agree, update, and the gather of ZeRO-1 and -2; or votes in agree's place, and what an undo takes back.
Code update(Code, const PlanContext&, const Program&);
// Slices of the state, spread under the forwards.
Code snapshot(Code, const PlanContext&, const Program&);

// `pipe` with receives issued so many actions before they are needed.
Code place_pipe(Code, const PlanContext&, const Program&, int receive_ahead);

// What passes ask.
std::vector<BlockLayout> layouts_of(const Model&);
std::vector<std::vector<int>> buckets_of_blocks(const std::vector<BlockLayout>&, const Program&);  // distinct, in order
inline bool is_backward(Verb v) { return v == Verb::backward_input || v == Verb::backward_weight; }
inline Instr on_block(Verb v, const Instr& like, int block) {
  return {.verb = v, .microbatch = like.microbatch, .chunk = like.chunk, .block = int16_t(block)};
}
inline Instr on_bucket(Verb v, Lane lane, int bucket) { return {.verb = v, .lane = lane, .bucket = int16_t(bucket)}; }

// Instructions to insert before and after those of a list.
class Insertions {
 public:
  explicit Insertions(size_t size) : before_(size), after_(size) {}
  Code& before(size_t k) { return before_[k]; }
  Code& after(size_t k) { return after_[k]; }
  Code apply(const Code&) const;

 private:
  std::vector<Code> before_, after_;
};

}  // namespace trainer
