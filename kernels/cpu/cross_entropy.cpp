// The head: logits of a chunk of rows, their statistics and, in place, their gradients, then the two products of the
// gradient.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/vector-inl.h"

#ifndef TRAINER_CPU_CROSS_ENTROPY_ROW
#define TRAINER_CPU_CROSS_ENTROPY_ROW
namespace trainer::cpu {

struct HeadRow {
  std::byte* logits;
  size_t columns, vocab, target;
  float weight;
  bool train;
};

}  // namespace trainer::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504f;

template <class T>
HWY_INLINE float value(const T& x) {
  return hn::GetLane(load(&x, Part{1}));
}

template <class T>
float largest(const T* x, size_t n) {
  V m0 = set(-INFINITY), m1 = m0;
  size_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    m0 = hn::Max(m0, load(x + i));
    m1 = hn::Max(m1, load(x + i + kWidth));
  }
  float m = hn::GetLane(hn::MaxOfLanes(df, hn::Max(m0, m1)));
  for (; i < n; ++i) m = std::max(m, value(x[i]));
  return m;
}

// The logarithm of the sum of exponentials.
template <class T>
double log_sum_exp(const T* x, size_t n) {
  const float m = largest(x, n);
  const V shift = set(m * kLog2E);
  const float s = sum_over(n, [&](V total, size_t i, auto part) HWY_ATTR {
    return hn::Add(total, keep(exp2(hn::MulSub(load(x + i, part), set(kLog2E), shift)), part));
  });
  return double(m) + std::log(double(s));
}

// x = (exp(x - lse) - onehot(target)) weight in the first `vocab` of `n` columns, zero in the others.
template <class T>
void softmax_grad(T* x, size_t n, size_t vocab, size_t target, float lse, float weight) {
  const float at_target = weight * (std::exp(value(x[target]) - lse) - 1.0f);
  const V shift = set(lse * kLog2E);
  for_vectors(vocab, [&](size_t i, auto part) HWY_ATTR {
    store(hn::Mul(set(weight), exp2(hn::MulSub(load(x + i, part), set(kLog2E), shift))), x + i, part);
  });
  std::fill(x + vocab, x + n, T{});
  store(set(at_target), x + target, Part{1});
}

// The row's loss; its logits become their gradient where `train`.
template <class T>
double head_row(const HeadRow& row) {
  T* x = reinterpret_cast<T*>(row.logits);
  if (row.weight == 0) {
    if (row.train) std::fill_n(x, row.columns, T{});
    return 0;
  }
  const double lse = log_sum_exp(x, row.vocab), loss = double(row.weight) * (lse - double(value(x[row.target])));
  if (row.train) softmax_grad(x, row.columns, row.vocab, row.target, float(lse), row.weight);
  return loss;
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {
namespace {

constexpr size_t kAlign = 128;
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// One chunk of rows as the operations it consists of.
struct Chunk {
  int64_t begin, rows;
  MatMul logits, d_x, d_weight;

  Chunk(const LinearCrossEntropy& op, int64_t first, std::byte* buffer)
      : begin(first), rows(std::min(op.chunk_rows, op.x.rows() - first)) {
    const Tensor x = row_part(op.x, begin, begin + rows);
    const Tensor scores = make_tensor(buffer, op.x.dtype, {rows, op.weight.rows()});
    logits.c = scores;
    logits.a = x;
    logits.b = op.weight;
    logits.transpose_b = true;
    if (!op.train) return;
    d_x.c = row_part(op.d_x, begin, begin + rows);
    d_x.a = scores;
    d_x.b = op.weight;
    d_weight.c = op.d_weight;
    d_weight.a = scores;
    d_weight.b = x;
    d_weight.transpose_a = true;
    d_weight.accumulate = op.accumulate || begin > 0;
  }
};

size_t logits_bytes(const LinearCrossEntropy& op) {
  const int64_t rows = std::min(op.chunk_rows, op.x.rows());
  return aligned(size_t(rows * op.weight.rows()) * size_of(op.x.dtype));
}
size_t losses_bytes(const LinearCrossEntropy& op) {
  return aligned(size_t(std::min(op.chunk_rows, op.x.rows())) * sizeof(double));
}

void check_head(const LinearCrossEntropy& op) {
  const int64_t n = op.x.rows(), vocab = op.vocab;
  check(op.weight.dtype == op.x.dtype && vocab > 0 && vocab <= op.weight.rows() && op.chunk_rows > 0 &&
            op.targets.elements() == n && op.weights.elements() == n && (!op.row_loss || op.row_loss.elements() == n),
        Exit::device,
        "linear_cross_entropy: vocabulary {} of {} rows, {} targets and {} weights for {} rows, chunks of {}", vocab,
        op.weight.rows(), op.targets.elements(), op.weights.elements(), n, op.chunk_rows);
  const auto* targets = data_as<const int32_t>(op.targets);
  for (int64_t i = 0; i < n; ++i)
    check(targets[i] >= 0 && targets[i] < vocab, Exit::data,
          "linear_cross_entropy: the target of row {} is {}, wanted [0, {}); the corpus and model.vocab do not belong "
          "together",
          i, targets[i], vocab);
}

// Losses of the chunk's rows; its logits become gradients where the operation trains.
void score(Pool& pool, const LinearCrossEntropy& op, const Chunk& chunk, double* losses) {
  const auto* targets = data_as<const int32_t>(op.targets) + chunk.begin;
  const auto* weights = data_as<const float>(op.weights) + chunk.begin;
  const Tensor& logits = chunk.logits.c;
  with_dtype(LinearCrossEntropy::kName, logits.dtype, [&]<class T>(T) {
    pool.tasks(chunk.rows, [&](int64_t i, int) {
      losses[i] =
          TRAINER_VECTOR(head_row<T>)({logits.data + i * logits.stride() * int64_t(sizeof(T)), size_t(logits.shape[1]),
                                       size_t(op.vocab), size_t(targets[i]), weights[i], op.train});
    });
  });
}

// In the order of rows, so that the sum does not depend on chunks.
void add_up(const LinearCrossEntropy& op, const Chunk& chunk, const double* losses, Outcome& sums) {
  for (int64_t i = 0; i < chunk.rows; ++i) {
    sums.loss_sum += losses[i];
    sums.tokens += double(data_as<const float>(op.weights)[chunk.begin + i]);
    if (op.row_loss) data_as<float>(op.row_loss)[chunk.begin + i] = float(losses[i]);
  }
}

}  // namespace

size_t scratch_bytes(const LinearCrossEntropy& op) {
  size_t product = 0;
  const int64_t n = op.x.rows();
  for (int64_t begin :
       {int64_t{0}, n > op.chunk_rows ? n / op.chunk_rows * op.chunk_rows : 0}) {  // a whole chunk, the last one
    if (begin >= n) continue;
    const Chunk chunk(op, begin, nullptr);
    product = std::max(product, scratch_bytes(chunk.logits));
    if (op.train) product = std::max({product, scratch_bytes(chunk.d_x), scratch_bytes(chunk.d_weight)});
  }
  return logits_bytes(op) + losses_bytes(op) + aligned(product);
}

void run(Stream& stream, const LinearCrossEntropy& op) {
  check_head(op);
  Pool& pool = pool_of(stream);
  std::byte* logits = stream.scratch().data();
  auto* losses = reinterpret_cast<double*>(logits + logits_bytes(op));
  const auto scratch = stream.scratch().subspan(logits_bytes(op) + losses_bytes(op));
  Outcome sums{};
  for (int64_t begin = 0; begin < op.x.rows(); begin += op.chunk_rows) {
    const Chunk chunk(op, begin, logits);
    multiply(pool, chunk.logits, scratch);
    score(pool, op, chunk, losses);
    add_up(op, chunk, losses, sums);
    if (!op.train) continue;
    multiply(pool, chunk.d_x, scratch);
    multiply(pool, chunk.d_weight, scratch);
  }
  auto& outcome = *data_as<Outcome>(op.outcome);
  outcome.loss_sum += sums.loss_sum;
  outcome.tokens += sums.tokens;
}

}  // namespace trainer::cpu
#endif
