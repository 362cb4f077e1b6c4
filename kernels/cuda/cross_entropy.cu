// LogitRecords and CrossEntropy: bytes moved are the ideal, the logits read once for the records, and read and written
// once for the gradients. A target out of the vocabulary makes its row's loss NaN, and so the step's (the host cannot
// look before it launches).
#include "core/ops/control.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trainer::cuda {
namespace {

constexpr int kRowThreads = 512, kAhead = 4;
constexpr float kLog2E = 1.44269504f;

struct LogitRecord {
  float largest, sum, target;
};
static_assert(sizeof(LogitRecord) == kLogitRecord * sizeof(float));

// The column of a row's target, -1 where another slice has it. REQUIRES: it is within the vocabulary.
__device__ __forceinline__ int64_t column_of(int32_t target, const VocabularySlice& slice) {
  const int64_t column = target - slice.first;
  return column >= 0 && column < slice.count ? column : -1;
}

// The largest value so far and the sum of exp(value - largest): of the empty set at first, where the exponent may be no
// NaN.
struct Softmax {
  float largest = -INFINITY, sum = 0;
  __device__ static float power(float x, float largest) { return exp2f((x - largest) * kLog2E); }
  __device__ void join(float other_largest, float other_sum) {
    const float both = fmaxf(largest, other_largest);
    const float own = sum == 0 ? 0 : sum * power(largest, both),
                other = other_sum == 0 ? 0 : other_sum * power(other_largest, both);
    largest = both;
    sum = own + other;
  }
};

// A block a row. Threads take the vectors in turn; their parts are joined within warps and then in the order of warps.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kRowThreads)
    logit_records_kernel(LogitRecord* records, Rows<const T> logits, const int32_t* targets, VocabularySlice slice) {
  constexpr int V = kWide<T>;
  CU_SHARED(Softmax, warps, [kRowThreads / kWarp]);
  const T* x = logits[blockIdx.x];
  const auto vectors = int((slice.count + V - 1) / V);
  const auto count = [&](int v) { return slice.count - int64_t(v) * V < V ? int(slice.count - int64_t(v) * V) : V; };
  Softmax part;
  for (int first = int(threadIdx.x); first < vectors; first += kAhead * int(blockDim.x)) {
    Pack<T, V> ahead[kAhead] = {};
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
      if (const int v = first + a * int(blockDim.x); v < vectors)
        ahead[a] = load<V, kAligned>(x + int64_t(v) * V, count(v));
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int v = first + a * int(blockDim.x);
      if (v >= vectors) break;
      const Floats<V> value = floats(ahead[a]);
      const int n = count(v);
      float largest = value.at[0], sum = 0;
#pragma unroll
      for (int i = 1; i < V; ++i) largest = i < n ? fmaxf(largest, value.at[i]) : largest;
      largest = fmaxf(largest, part.largest);
#pragma unroll
      for (int i = 0; i < V; ++i) sum += i < n ? Softmax::power(value.at[i], largest) : 0;
      part = {largest, part.sum == 0 ? sum : part.sum * Softmax::power(part.largest, largest) + sum};
    }
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float largest = __shfl_xor_sync(kAllLanes, part.largest, offset),
                sum = __shfl_xor_sync(kAllLanes, part.sum, offset);
    part.join(largest, sum);
  }
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = part;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < int(blockDim.x) / kWarp; ++w) part.join(warps[w].largest, warps[w].sum);
  const int32_t target = targets[blockIdx.x];
  float of_target = __int_as_float(0x7fffffff);
  if (target >= 0 && target < slice.vocab) {
    const int64_t column = column_of(target, slice);
    of_target = column < 0 ? 0 : load_floats<1>(x + column).at[0];
  }
  records[blockIdx.x] = {part.largest, part.sum, of_target};
}

struct RowLoss {
  double lse, loss;
};
// Of all slices, in the order of ranks.
__device__ __forceinline__ RowLoss loss_of(const LogitRecord* records, int64_t ranks, int64_t rows, int64_t row) {
  float largest = -INFINITY;
  for (int64_t r = 0; r < ranks; ++r) largest = fmaxf(largest, records[r * rows + row].largest);
  double sum = 0, target = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const LogitRecord part = records[r * rows + row];
    if (part.sum != 0) sum += double(part.sum) * exp(double(part.largest) - double(largest));
    target += double(part.target);
  }
  const double lse = double(largest) + log(sum);
  return {lse, lse - target};
}

struct LossRows {
  const LogitRecord* records;
  const float* weights;
  float* row_loss;   // or nullptr
  Outcome* outcome;  // or nullptr
  int64_t ranks, rows;
};

// The losses of all rows, added to the outcome one after the other: the sum does not depend on how rows are cut into
// chunks. Losses are worked out by all threads; one adds them up, another the weights.
__device__ __forceinline__ void add_up(const LossRows& a, double* losses, float* weights) {
  double loss = a.outcome ? a.outcome->loss_sum : 0, tokens = a.outcome ? a.outcome->tokens : 0;
  const int threads = int(blockDim.x), adds_tokens = threads > kWarp ? kWarp : 0;
  for (int64_t first = 0; first < a.rows; first += threads) {
    const int64_t row = first + threadIdx.x;
    const int count = a.rows - first < threads ? int(a.rows - first) : threads;
    if (row < a.rows) {
      const float weight = a.weights[row];
      const double of_row = weight == 0 ? 0 : double(weight) * loss_of(a.records, a.ranks, a.rows, row).loss;
      if (a.row_loss) a.row_loss[row] = float(of_row);
      losses[threadIdx.x] = of_row;
      weights[threadIdx.x] = weight;
    }
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < count; ++i) loss += losses[i];
    if (int(threadIdx.x) == adds_tokens)
      for (int i = 0; i < count; ++i) tokens += double(weights[i]);
    __syncthreads();
  }
  if (!a.outcome) return;
  if (threadIdx.x == 0) a.outcome->loss_sum = loss;
  if (int(threadIdx.x) == adds_tokens) a.outcome->tokens = tokens;
}

// x = (exp(x - lse) - onehot(target)) weight in the first slice.count of `columns`, zero in the others.
template <class T, bool kAligned>
__device__ __forceinline__ void gradient_row(T* x, int64_t columns, const VocabularySlice& slice, int64_t target,
                                             float lse, float weight) {
  constexpr int V = kWide<T>;
  const auto vectors = int((columns + V - 1) / V);
  const auto count = [&](int v) { return columns - int64_t(v) * V < V ? int(columns - int64_t(v) * V) : V; };
  for (int first = int(threadIdx.x); first < vectors; first += kAhead * int(blockDim.x)) {
    Pack<T, V> ahead[kAhead] = {};
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
      if (const int v = first + a * int(blockDim.x); v < vectors && weight != 0)
        ahead[a] = load<V, kAligned>(x + int64_t(v) * V, count(v));
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int v = first + a * int(blockDim.x);
      if (v >= vectors) break;
      Floats<V> value = floats(ahead[a]);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int64_t column = int64_t(v) * V + i;
        const float softmax = Softmax::power(value.at[i], lse);
        value.at[i] = weight == 0 || column >= slice.count ? 0 : weight * (softmax - (column == target ? 1.0f : 0.0f));
      }
      store_floats<V, kAligned>(x + int64_t(v) * V, value, count(v));
    }
  }
}

// Block 0 adds up the losses, while each of the others turns a row of logits into its gradient.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(LossRows a, Rows<T> logits, int64_t columns, const int32_t* targets, VocabularySlice slice) {
  CU_SHARED(double, losses, [kRowThreads]);
  CU_SHARED(float, weights, [kRowThreads]);
  if (blockIdx.x == 0) return add_up(a, losses, weights);
  const int64_t row = int64_t(blockIdx.x) - 1;
  const float weight = a.weights[row];
  if (threadIdx.x == 0 && weight != 0) losses[0] = loss_of(a.records, a.ranks, a.rows, row).lse;
  __syncthreads();
  gradient_row<T, kAligned>(logits[row], columns, slice, column_of(targets[row], slice),
                            weight != 0 ? float(losses[0]) : 0, weight);
}

void check_slice(const char* op, const Tensor& logits, const VocabularySlice& s) {
  const bool fits =
      s.vocab > 0 && s.first >= 0 && s.count >= 0 && s.first + s.count <= s.vocab && s.count <= logits.shape[1];
  if (!fits) refuse_size(op, "a slice of the vocabulary", s.count, logits.shape[1]);
}
void check_elements(const char* op, const char* what, const Tensor& t, int64_t wanted) {
  if (t.elements() != wanted) refuse_size(op, what, t.elements(), wanted);
}

}  // namespace

void run(Stream& stream, const LogitRecords& op) {
  const int64_t rows = op.logits.rows();
  check_slice(op.kName, op.logits, op.slice);
  check_elements(op.kName, "targets", op.targets, rows);
  check_elements(op.kName, "records", op.records, rows * kLogitRecord);
  if (rows == 0) return;
  with_dtype(op.kName, op.logits.dtype, [&]<class T>(T) {
    const dim3 grid{unsigned(rows)}, block{unsigned(threads_for(ceil_div(op.slice.count, kWide<T>), kRowThreads))};
    auto* records = data_as<LogitRecord>(op.records);
    const auto* targets = data_as<const int32_t>(op.targets);
    const Rows<const T> logits(op.logits);
    if (aligned(kWide<T>, {rows, op.logits.shape[1]}, {&op.logits}))
      CU_LAUNCH((logit_records_kernel<T, true>), grid, block, 0, stream_of(stream), records, logits, targets, op.slice);
    else
      CU_LAUNCH((logit_records_kernel<T, false>), grid, block, 0, stream_of(stream), records, logits, targets,
                op.slice);
  });
}

void run(Stream& stream, const CrossEntropy& op) {
  const int64_t rows = op.logits.rows(), columns = op.logits.shape[1];
  check_slice(op.kName, op.logits, op.slice);
  check_elements(op.kName, "records", op.records, op.records.shape[0] * rows * kLogitRecord);
  check_elements(op.kName, "targets", op.targets, rows);
  check_elements(op.kName, "weights", op.weights, rows);
  if (op.row_loss) check_elements(op.kName, "row losses", op.row_loss, rows);
  const LossRows losses{data_as<const LogitRecord>(op.records),
                        data_as<const float>(op.weights),
                        data_as<float>(op.row_loss),
                        data_as<Outcome>(op.outcome),
                        op.records.shape[0],
                        rows};
  with_dtype(op.kName, op.logits.dtype, [&]<class T>(T) {
    const dim3 grid{unsigned(op.train ? rows + 1 : 1)};
    const int64_t work = op.train ? ceil_div(columns, kWide<T>) : rows;
    const dim3 block{unsigned(threads_for(work, kRowThreads))};
    const auto* targets = data_as<const int32_t>(op.targets);
    const Rows<T> logits(op.logits);
    if (aligned(kWide<T>, {rows, columns}, {&op.logits}))
      CU_LAUNCH((cross_entropy_kernel<T, true>), grid, block, 0, stream_of(stream), losses, logits, columns, targets,
                op.slice);
    else
      CU_LAUNCH((cross_entropy_kernel<T, false>), grid, block, 0, stream_of(stream), losses, logits, columns, targets,
                op.slice);
  });
}

}  // namespace trainer::cuda
