// Forward only, without a plan: the blocks run in order on one lane. Generation is a forward pass of one token with
// cached keys and values; `trainer eval` is one of a whole batch, with its logits.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "core/device/comm.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace trainer {

// Where everything lies in an arena of its own. The weights are the program's only state.
struct ForwardLayout {
  Program program;                           // buckets, weight slots, scratch; no plans
  std::vector<std::vector<size_t>> buffers;  // per block: offsets of saved, forward_work and cache, in this order
  std::array<size_t, 2> stream{};            // the residual stream, in and out in turn
  std::array<size_t, kBatchFields> batch{};
  int64_t rows = 0;    // of a batch
  size_t logits = 0;   // f32
  Shape logits_shape;  // [rows, padded vocabulary]
};

// `state` holds the model's buckets and state slots (all but the weights are left out); `rows` is what the model was
// built for.
ForwardLayout lay_out_forward(Program state, const Model&, int64_t rows);

class ForwardPass {
 public:
  // The weights (layout.program.state) are filled in by the caller, through the device's arena. Everything given
  // outlives this.
  ForwardPass(const ForwardLayout&, const Model&, Device&, Groups&);
  Batch batch() const;  // to fill before a run
  // All blocks but the head in `phase`, then the head's logits. Waits. cache_position: rows of the cache that are
  // filled.
  Tensor run(Phase phase, int64_t cache_position = 0);

 private:
  void run_block(size_t block, Phase, int64_t cache_position);
  const ForwardLayout& layout_;
  const Model& model_;
  Device& device_;
  Groups& groups_;
  std::vector<BlockLayout> layouts_;
  std::vector<std::vector<Tensor>> params_;
  std::byte* base_;
};

// Token by token. The model is built with decoding_spec.
class Decoder {
 public:
  explicit Decoder(ForwardPass& pass) : pass_(pass) {}
  // Appends `token` to the sequence and returns the logits of what follows, padding included; valid until the next
  // call. REQUIRES: fewer than max_seq_len tokens so far.
  std::span<const float> append(int32_t token);
  int64_t length() const { return length_; }

 private:
  ForwardPass& pass_;
  int64_t length_ = 0;
};

// One row, fp32, on a CPU.
RunSpec decoding_spec(const ModelSpec&);

}  // namespace trainer
