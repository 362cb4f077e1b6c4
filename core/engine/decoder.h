// Generation: forward only, one sequence, one token at a time, keys and values cached. No plan: the blocks run in order
// on one lane.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/device/comm.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace trainer {

// Where everything lies in the decoder's own arena. The weights are the program's only state, in fp32.
struct DecoderLayout {
  Program program;                           // buckets, weight slots, scratch; no plans
  std::vector<std::vector<size_t>> buffers;  // per block: offsets of saved, forward_work and cache, in this order
  std::array<size_t, 2> stream{};            // the residual stream, in and out in turn
  std::array<size_t, kBatchFields> batch{};
  size_t logits = 0;
  Shape logits_shape;
};

// The spec a model must be built with to decode: one row, fp32, no recompute.
RunSpec decoding_spec(const ModelSpec&);
// `state` holds the model's buckets and state slots (all but the weights are left out). REQUIRES: `model` was built
// with decoding_spec.
DecoderLayout layout_decoder(Program state, const Model&);

class Decoder {
 public:
  // The weights (layout.program.state) are filled in by the caller, through the device's arena.
  Decoder(const DecoderLayout&, const Model&, Device&, Groups&);
  // Appends `token` to the sequence and returns the logits of what follows, padding included; valid until the next
  // call. REQUIRES: fewer than max_seq_len tokens so far.
  std::span<const float> append(int32_t token);
  int64_t length() const { return length_; }

 private:
  void run_block(size_t block);
  const DecoderLayout& layout_;
  const Model& model_;
  Device& device_;
  Groups& groups_;
  std::vector<BlockLayout> layouts_;
  std::vector<std::vector<Tensor>> params_;
  std::byte* base_;
  int64_t length_ = 0;
};

}  // namespace trainer
