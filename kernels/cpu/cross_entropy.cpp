// The records of a chunk's logits and, in place, their gradients.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <cmath>

#include "core/base/error.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/vector-inl.h"

#ifndef TRAINER_CPU_CROSS_ENTROPY_ROW
#define TRAINER_CPU_CROSS_ENTROPY_ROW
namespace trainer::cpu {

struct LogitRecord {
  float largest, sum, target;
};
static_assert(sizeof(LogitRecord) == kLogitRecord * sizeof(float));

struct GradientRow {
  size_t columns, count;
  int64_t target;  // of this slice's columns; negative where another slice has it
  float lse, weight;
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

template <class T>
LogitRecord record(const T* x, size_t n, int64_t target) {
  const float m = largest(x, n);
  const V shift = set(m * kLog2E);
  const float s = sum_over(n, [&](V total, size_t i, auto part) HWY_ATTR {
    return hn::Add(total, keep(exp2(hn::MulSub(load(x + i, part), set(kLog2E), shift)), part));
  });
  return {m, s, target < 0 ? 0 : value(x[target])};
}

// x = (exp(x - lse) - onehot(target)) weight in the first `count` of `columns`, zero in the others.
template <class T>
void gradient(T* x, const GradientRow& row) {
  if (row.weight == 0) {
    std::fill_n(x, row.columns, T{});
    return;
  }
  const float at_target = row.target < 0 ? 0 : row.weight * (std::exp(value(x[row.target]) - row.lse) - 1.0f);
  const V shift = set(row.lse * kLog2E);
  for_vectors(row.count, [&](size_t i, auto part) HWY_ATTR {
    store(hn::Mul(set(row.weight), exp2(hn::MulSub(load(x + i, part), set(kLog2E), shift))), x + i, part);
  });
  std::fill(x + row.count, x + row.columns, T{});
  if (row.target >= 0) store(set(at_target), x + row.target, Part{1});
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {
namespace {

void check_slice(const char* op, const Tensor& logits, const VocabularySlice& s) {
  check(s.vocab > 0 && s.first >= 0 && s.count >= 0 && s.first + s.count <= s.vocab && s.count <= logits.shape[1],
        Exit::device, "{}: rows [{}, {}) of a vocabulary of {} in {} columns", op, s.first, s.first + s.count, s.vocab,
        logits.shape[1]);
}

// The column of a row's target, negative where it is not in this slice.
int64_t column_of(const Tensor& targets, int64_t row, const VocabularySlice& s) {
  const int64_t column = data_as<const int32_t>(targets)[row] - s.first;
  return column < s.count ? std::max<int64_t>(column, -1) : -1;
}

struct RowLoss {
  double lse, loss;
};
// Of all slices, in the order of ranks.
RowLoss loss_of(const Tensor& records, int64_t rows, int64_t row) {
  const auto* all = data_as<const LogitRecord>(records);
  const int64_t ranks = records.shape[0];
  float largest = -INFINITY;
  for (int64_t r = 0; r < ranks; ++r) largest = std::max(largest, all[r * rows + row].largest);
  double sum = 0, target = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const LogitRecord& part = all[r * rows + row];
    sum += double(part.sum) * std::exp(double(part.largest) - double(largest));
    target += double(part.target);
  }
  const double lse = double(largest) + std::log(sum);
  return {lse, lse - target};
}

// In the order of rows, so that the sum does not depend on chunks.
void add_up(const CrossEntropy& op) {
  const auto* weights = data_as<const float>(op.weights);
  for (int64_t n = 0; n < op.logits.rows(); ++n) {
    const double loss = weights[n] == 0 ? 0 : double(weights[n]) * loss_of(op.records, op.logits.rows(), n).loss;
    if (op.row_loss) data_as<float>(op.row_loss)[n] = float(loss);
    if (!op.outcome) continue;
    auto& outcome = *data_as<Outcome>(op.outcome);
    outcome.loss_sum += loss;
    outcome.tokens += double(weights[n]);
  }
}

}  // namespace

void run(Stream& stream, const LogitRecords& op) {
  const int64_t rows = op.logits.rows();
  check_slice(op.kName, op.logits, op.slice);
  check(op.targets.elements() == rows && op.records.elements() == rows * kLogitRecord, Exit::device,
        "{}: {} targets and {} values of records for {} rows", op.kName, op.targets.elements(), op.records.elements(),
        rows);
  const auto* targets = data_as<const int32_t>(op.targets);
  for (int64_t n = 0; n < rows; ++n)
    check(targets[n] >= 0 && targets[n] < op.slice.vocab, Exit::data,
          "{}: the target of row {} is {}, wanted [0, {}); the corpus and model.vocab_size do not belong together",
          op.kName, n, targets[n], op.slice.vocab);
  with_dtype(op.kName, op.logits.dtype, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(record<T>);
    pool_of(stream).tasks(rows, [&](int64_t n, int) {
      data_as<LogitRecord>(op.records)[n] = kernel(data_as<const T>(op.logits) + n * op.logits.stride(),
                                                   size_t(op.slice.count), column_of(op.targets, n, op.slice));
    });
  });
}

void run(Stream& stream, const CrossEntropy& op) {
  const int64_t rows = op.logits.rows();
  check_slice(op.kName, op.logits, op.slice);
  check(op.records.shape.rank == 3 && op.records.shape[1] == rows && op.records.shape[2] == kLogitRecord &&
            op.targets.elements() == rows && op.weights.elements() == rows &&
            (!op.row_loss || op.row_loss.elements() == rows),
        Exit::device, "{}: {} records, {} targets and {} weights for {} rows", op.kName, op.records.rows(),
        op.targets.elements(), op.weights.elements(), rows);
  add_up(op);
  if (!op.train) return;
  const auto* weights = data_as<const float>(op.weights);
  with_dtype(op.kName, op.logits.dtype, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(gradient<T>);
    pool_of(stream).tasks(rows, [&](int64_t n, int) {
      kernel(data_as<T>(op.logits) + n * op.logits.stride(),
             {size_t(op.logits.shape[1]), size_t(op.slice.count), column_of(op.targets, n, op.slice),
              float(loss_of(op.records, rows, n).lse), weights[n]});
    });
  });
}

}  // namespace trainer::cpu
#endif
