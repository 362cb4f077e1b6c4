// A model is a list of blocks and the parameters they name.
#pragma once
#include <memory>
#include <vector>

#include "core/model/block.h"
#include "core/spec/run_spec.h"

namespace trainer {

struct Mesh;

// layer[b]: full recompute restores the blocks of a layer together, chunks are cut between layers, and a bucket is a layer by
// default. The embedding's layer is -1, the head's num_layers.
struct Model {
  std::vector<Param> params;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<int> layer;
  int64_t parameters = 0;  // of the whole model: a slice of tp may have nothing of a tensor
  std::vector<double> flops;  // by block, of a micro-batch's forward and backward: what pipelines are cut by
};

// The shapes of this rank, for micro-batches of `train.micro_batch` x `data.seq_len`. Throws Error(spec) where the spec and the
// built model disagree on the number of parameters.
Model build_model(const RunSpec&, const Mesh&);

// From the spec alone, by the architecture's formula: padding excluded, tied embeddings once.
int64_t parameter_count(const ModelSpec&);
// Of a built model: the sizes of its distinct logical tensors.
inline int64_t parameter_count(const Model& m) { return m.parameters; }

RecomputeLevel recompute_level(const RecomputeSpec&, int layer);

// FLOPs of one trained token (forward and backward, recompute not counted), under three named conventions.
//   simple: 6 N + 12 L C T, N without the position table (PaLM, appendix B); C = num_heads * head_dim
//   exact_full: all products of the model, attention counted as a full square; exact_causal: what the mask leaves
struct FlopsPerToken {
  double simple = 0, exact_full = 0, exact_causal = 0;
};
FlopsPerToken flops_per_token(const ModelSpec&, int64_t seq_len);

}  // namespace trainer
