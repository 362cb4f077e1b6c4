// A block is a half layer (attention, or feed-forward; plus embedding and head): stateless arithmetic, forward and the two halves
// of backward. It launches operations on views that somebody else laid out.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/device/comm.h"
#include "core/model/param.h"
#include "core/ops/control.h"

namespace trainer {

// Who may drop a saved tensor and have it recomputed. Full recompute keeps a layer's input only.
enum class Keep : uint8_t { always, unless_selective, unless_full };
enum class RecomputeLevel : uint8_t { none, selective, full };   // of one layer
constexpr bool drops(RecomputeLevel level, Keep keep) {
  if (level == RecomputeLevel::full) return keep != Keep::always;
  return level == RecomputeLevel::selective && keep == Keep::unless_selective;
}

struct Buffer {
  Shape shape;
  DType dtype = DType::f32;
  Keep keep = Keep::always;   // of saved buffers only
};

// The fields of a micro-batch, as slots: a block names those it reads, and the loader fills those somebody reads.
//   tokens, targets, positions, segments i32 [N]; weights f32 [N] (1, or 0 for a masked target); rows i64 [N], global row index.
enum class BatchField : uint8_t { tokens, targets, weights, positions, segments, rows };
inline constexpr int kBatchFields = 6;
inline constexpr std::array<DType, kBatchFields> kBatchDTypes{DType::i32, DType::i32, DType::f32,
                                                              DType::i32, DType::i32, DType::i64};
using BatchMask = uint8_t;
constexpr BatchMask field(BatchField f) { return BatchMask(1u << unsigned(f)); }

struct BlockLayout {
  std::string name;                      // "layers.3.attention"
  std::vector<ParamId> params;
  std::vector<Shape> in, out;            // residual streams, of `dtype`
  DType dtype = DType::bf16;             // of in, out and their gradients
  std::vector<Buffer> saved;             // forward -> backward_input and backward_weight
  std::vector<Buffer> stash;             // backward_input -> backward_weight
  std::vector<Buffer> forward_work, backward_work;   // live within one call of forward or recompute; of backward_input
  std::vector<Buffer> cache;             // generation: keys and values, [max_seq_len, ...]
  BatchMask reads = 0, backward_input_reads = 0, backward_weight_reads = 0;
  bool reads_control = false;            // forward, recompute and backward halves (dropout's seed)
  bool adds_outcome = false;             // the head: loss and token count, in forward
  bool has_input_half = true, has_weight_half = true;        // the embedding has no backward_input
  bool grads_in_forward = false;         // the head: forward writes d_in and adds its weight gradients; it has neither half
  bool input_reads_in = false, weight_reads_in = false, weight_reads_d_out = false;   // besides saved and stash
};

// Empty where the block did not ask for it.
struct Batch {
  std::array<Tensor, kBatchFields> fields;
  Tensor& operator[](BatchField f) { return fields[size_t(f)]; }
  const Tensor& operator[](BatchField f) const { return fields[size_t(f)]; }
};

struct Gradient {
  Tensor tensor;           // of the parameter's local shape; f32, or bf16 where precision.gradients says so
  bool accumulate = false; // false: this is the parameter's first contribution to the gradient slot
};

struct BlockViews {
  std::span<const Tensor> in, out, d_in, d_out, params, saved, stash, work, cache;
  std::span<const Gradient> grads;       // in the order of params
  Tensor control, outcome;
  Batch batch;
};

enum class Phase : uint8_t { train, evaluate, generate };    // dropout and the head's gradient work belong to train only
struct BlockContext {
  Stream& compute;
  Stream& side;
  Groups& groups;
  Phase phase = Phase::train;
  RecomputeLevel recompute = RecomputeLevel::none;   // of this layer: what `recompute` has to restore
  int64_t cache_position = 0;                        // generate: rows [0, cache_position) of the cache are filled
};

class Block {
 public:
  virtual ~Block() = default;
  virtual BlockLayout layout() const = 0;
  virtual void forward(BlockContext&, const BlockViews&) const = 0;          // in           -> out, saved
  virtual void recompute(BlockContext&, const BlockViews&) const = 0;        // in, kept     -> what was dropped, and out where given
  virtual void backward_input(BlockContext&, const BlockViews&) const = 0;   // d_out, saved -> d_in, stash
  virtual void backward_weight(BlockContext&, const BlockViews&) const = 0;  // saved, stash -> grads (+=)
};

}  // namespace trainer
