#include "kernels/cpu/attention_decode.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "core/base/error.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/attention_vector-inl.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {
namespace {

// Weights of `count` keys for one query head; what was summed before is scaled down where a larger score turns up.
template <class T>
void weigh_block(const DecodeJob<T>& job, const T* keys, int64_t head, int64_t count) {
  const size_t n = size_t(job.width);
  const T* q = job.q + head * job.width;
  float *weights = job.weights + head * kDecodeBlock, *sums = job.sums + head * job.width;
  float top = job.top[head];
  for (int64_t k = 0; k < count; ++k, keys += job.row) {
    weights[k] = job.scale * kLog2E * sum_over(n, [&](V sum, size_t i, auto part) HWY_ATTR {
                   return hn::MulAdd(load(q + i, part), load(keys + i, part), sum);
                 });
    top = weights[k] > top || std::isnan(weights[k]) ? weights[k] : top;
  }
  const float factor = hn::GetLane(exp2_to_zero(set(job.top[head] - top)));
  for_vectors(size_t(count), [&](size_t i, auto part) HWY_ATTR {
    store(exp2_to_zero(hn::Sub(load(weights + i, part), set(top))), weights + i, part);
  });
  job.top[head] = top;
  job.total[head] = job.total[head] * factor + sum_over(size_t(count), [&](V sum, size_t i, auto part) HWY_ATTR {
                      return hn::Add(sum, load(weights + i, part));
                    });
  for_vectors(n,
              [&](size_t i, auto part) HWY_ATTR { store(hn::Mul(set(factor), load(sums + i, part)), sums + i, part); });
}

template <class T>
void attention_decode(const DecodeJob<T>& job) {
  std::fill_n(job.sums, job.heads * job.width, 0.0f);
  std::fill_n(job.top, job.heads, kHidden);
  std::fill_n(job.total, job.heads, 0.0f);
  for (int64_t begin = 0; begin < job.count; begin += kDecodeBlock) {
    const int64_t count = smaller(kDecodeBlock, job.count - begin);
    for (int64_t h = 0; h < job.heads; ++h) {
      weigh_block(job, job.keys + begin * job.row, h, count);
      float* sums = job.sums + h * job.width;
      for (int64_t k = 0; k < count; ++k) {
        const V weight = set(job.weights[h * kDecodeBlock + k]);
        const T* value = job.values + (begin + k) * job.row;
        for_vectors(size_t(job.width), [&](size_t i, auto part) HWY_ATTR {
          store(hn::MulAdd(weight, load(value + i, part), load(sums + i, part)), sums + i, part);
        });
      }
    }
  }
  for (int64_t h = 0; h < job.heads; ++h)
    scale_row(job.sums + h * job.width, 1 / job.total[h], job.width, job.out + h * job.width);
}

}  // namespace
}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {
namespace {

template <class T>
void carve(DecodeJob<T>& job, Carver memory) {
  job.sums = memory.take<float>(job.heads * job.width);
  job.weights = memory.take<float>(job.heads * kDecodeBlock);
  job.top = memory.take<float>(job.heads);
  job.total = memory.take<float>(job.heads);
}
size_t worker_bytes(const AttentionDecode& op) {
  const int64_t heads = op.q.shape[1] / op.kv_heads;
  Carver count(nullptr);
  for (int64_t n : {heads * op.q.shape[2], heads * kDecodeBlock, heads, heads}) count.take<float>(n);
  return count.used();
}

}  // namespace

size_t scratch_bytes(const AttentionDecode& op) { return worker_bytes(op) * size_t(planned_workers()); }

void run(Stream& stream, const AttentionDecode& op) {
  check_operands(op);
  const size_t bytes = worker_bytes(op);
  Pool& pool = pool_of(stream);
  check(stream.scratch().size() >= bytes * size_t(pool.size()), Exit::device,
        "{}: wanted {} bytes of scratch for each of {} workers, found {}", op.kName, bytes, pool.size(),
        stream.scratch().size());
  const int64_t first = op.window > 0 ? std::max<int64_t>(0, op.length - op.window) : 0;
  with_dtype(op.kName, {&op.q, &op.k_cache, &op.v_cache, &op.out}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(attention_decode<T>);
    pool.tasks(op.q.shape[0] * op.kv_heads, [&](int64_t task, int worker) {
      DecodeJob<T> job{};
      job.heads = op.q.shape[1] / op.kv_heads;
      job.width = op.q.shape[2];
      job.row = op.k_cache.shape[2];
      job.count = op.length - first;
      job.scale = op.scale;
      const int64_t b = task / op.kv_heads, head = task % op.kv_heads;
      job.q = data_as<T>(op.q) + b * op.q.stride() + head * job.heads * job.width;
      job.out = data_as<T>(op.out) + b * op.out.stride() + head * job.heads * job.width;
      job.keys = data_as<T>(op.k_cache) + b * op.k_cache.stride() + first * job.row + head * job.width;
      job.values = data_as<T>(op.v_cache) + b * op.v_cache.stride() + first * job.row + head * job.width;
      carve(job, Carver(stream.scratch().data() + bytes * size_t(worker)));
      kernel(job);
    });
  });
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
