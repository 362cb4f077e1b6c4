// Drives the blocks of a model directly: buffers as their layouts ask, each call given what its layout names and no
// more, no plan.
#pragma once
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "core/plan/mesh.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/support/buffer.h"
#include "tests/support/thread_comm.h"

namespace trainer::test {

// Those this program tests with: naive loops, or the CPU's. A source per test program defines it.
void install_kernels();

// A CPU device with scratch for small shapes.
class SmallDevice {
 public:
  SmallDevice();
  Stream& stream() { return device_.lane(Lane::compute); }
  void drain() { device_.drain(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> arena_;
  cpu::CpuDevice device_;
};

struct Sample {  // of N rows
  std::vector<int32_t> tokens, targets, positions, segments;
  std::vector<float> weights;
  std::vector<int64_t> rows;
};
// Random tokens and targets, a few of them masked; each sequence is two documents.
Sample random_sample(const RunSpec&, uint32_t seed);

// f(index in the local buffer, index in the logical tensor) for each element of a piece.
template <class F>
void for_piece(const Shape& local, const Param::Piece& piece, F&& f) {
  const bool matrix = local.rank == 2;
  const int64_t columns = matrix ? local[1] : 1, logical = matrix ? piece.logical[1] : 1;
  const int64_t width = matrix ? piece.to.hi[1] - piece.to.lo[1] : 1;
  for (int64_t r = 0; r < piece.to.hi[0] - piece.to.lo[0]; ++r)
    for (int64_t c = 0; c < width; ++c)
      f(size_t((piece.to.lo[0] + r) * columns + piece.to.lo[1] + c),
        size_t((piece.from.lo[0] + r) * logical + piece.from.lo[1] + c));
}

// The values of a piece of a parameter, or of its gradient.
Values piece_values(const Buffer&, const Param::Piece&);
void set_piece(Buffer&, const Param::Piece&, const Values&);

class RunModel {
 public:
  // One rank of `mesh`, which is one of a tp group that meets at `point`. Parameters hold their initial values with
  // noise by tensor in every piece, so that no norm is one and no bias zero: the same whatever the batch and the mesh.
  explicit RunModel(const RunSpec&, const Mesh& mesh = {},
                    std::shared_ptr<MeetingPoint> point = std::make_shared<MeetingPoint>(1));

  const Model& model() const { return model_; }
  Buffer& param(ParamId id) { return params_[id]; }
  const Buffer& grad(ParamId id) const { return grads_[id]; }
  // Of the embedding's output: this rank's rows of the stream.
  const Buffer& stream_grad() const { return d_acts_[1]; }

  Outcome evaluate(const Sample&);
  // Writes gradients, or adds to those that are there. What `level` drops is overwritten with NaN before it is
  // restored.
  Outcome train(const Sample&, RecomputeLevel level = RecomputeLevel::none, bool accumulate = false);
  // Logits [N, vocab].
  Values logits(const Sample&);
  // The same, a token at a time against the cache. REQUIRES: micro_batch 1, seq_len 1.
  Values generate(std::span<const int32_t> tokens);

  Control control{};

 private:
  struct BlockBuffers {
    BlockLayout layout;
    std::vector<Buffer> saved, stash, forward_work, backward_work, cache;
  };
  enum class Half : uint8_t { forward, recompute, backward_input, backward_weight };
  struct Call {
    size_t block;
    Half half;
    Phase phase = Phase::train;
    RecomputeLevel level = RecomputeLevel::none;
    bool give_out = true;
  };
  struct Lists;  // what a BlockViews spans
  Lists lists_of(const Call&);
  void call(const Call&);
  void load(const Sample&);
  void forward(Phase);
  void backward(RecomputeLevel);
  void drop_and_restore(size_t first, size_t last, RecomputeLevel);
  bool is_head(size_t block) const { return block + 1 == blocks_.size(); }
  Values read_logits() const;

  RunSpec spec_;
  Model model_;
  ThreadGroups groups_;
  SmallDevice device_;
  std::vector<Buffer> params_, grads_;
  std::vector<bool> filled_;  // the gradient holds something
  std::vector<BlockBuffers> blocks_;
  std::vector<Buffer> acts_, d_acts_;  // [b]: input of block b and its gradient; [0] is empty
  std::array<Buffer, kBatchFields> batch_;
  Buffer logits_;
  Outcome outcome_{};
  int64_t cache_position_ = 0;
};

}  // namespace trainer::test
