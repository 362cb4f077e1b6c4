// What an instruction touches, as tensors: computed once per plan, so that a step builds no views.
#pragma once
#include <vector>

#include "core/model/model.h"
#include "core/plan/plan.h"

namespace trainer {

struct Range {
  uint32_t begin = 0, end = 0;
};

// Views of a block's call: ranges of ResolvedPlan::tensors and ::grads, in the order of the block's layout.
struct BlockRanges {
  Range in, out, d_in, d_out, params, saved, stash, work, grads;
  std::array<Tensor, kBatchFields> batch;
};

struct ResolvedPlan {
  std::vector<Tensor> tensors;
  std::vector<Gradient> grads;
  std::vector<BlockRanges> blocks;  // of instruction i: blocks[block_of[i]]
  std::vector<int32_t> block_of;    // -1: no block
  std::vector<bool> awaited;        // by other instructions: whose end is worth an event
  LaneMask lanes = 0;               // that it uses or waits for
};

// Events of a lane that may be waited for at once, whatever plans follow each other: what a device keeps.
std::array<size_t, kLanes> events_of(const Program&);

// Elements of a bucket that all ranks of `axis` hold alike: Param::shared of neighbours, joined; ascending.
struct SharedRun {
  int64_t begin = 0, end = 0;
  Axis axis = Axis::tp;
  bool partial = false;
};
std::vector<SharedRun> shared_runs(const Bucket&, const Model&);

// `base` is where the arena starts; a device without an arena (the meter) gives any address that is not null.
ResolvedPlan resolve(const Plan&, const Program&, const Model&, const std::vector<BlockLayout>&, std::byte* base);

inline Tensor view_of(const Plan& plan, const Use& use, std::byte* base) {
  const Slot& slot = plan.slots[use.slot];
  return make_tensor(base + use.offset, slot.dtype, slot.shape);
}

}  // namespace trainer
