// The grid of tasks, and the choice of the kernels.
#include "kernels/cpu/attention.h"

#include <algorithm>

#include "core/base/error.h"
#include "kernels/cpu/attention_pair.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/workers.h"

namespace trainer::cpu {
namespace {

// Tasks that forward is cut into at least, where its queries allow: enough to occupy and to balance many workers.
constexpr int64_t kForwardTasks = 32;

// Task of kv head `head` of sequence `sequence`, over all of its queries.
template <class Op>
AttentionJob job_of(const Op& op, int64_t sequence, int64_t head) {
  AttentionJob job;
  job.length = job.end = op.seq_len();
  job.width = op.q.shape[2];
  job.heads = op.q.shape[1] / op.k.shape[1];
  const auto rows = [&](const Tensor& t, int64_t column) {
    return HeadRows{t.data + (sequence * job.length * t.stride() + column) * int64_t(size_of(t.dtype)), t.stride()};
  };
  const int64_t kv_column = head * job.width, column = kv_column * job.heads;
  job.q = rows(op.q, column);
  job.k = rows(op.k, kv_column);
  job.v = rows(op.v, kv_column);
  job.out = rows(op.out, column);
  if constexpr (requires { op.d_q; }) {
    job.d_out = rows(op.d_out, column);
    job.d_q = rows(op.d_q, column);
    job.d_k = rows(op.d_k, kv_column);
    job.d_v = rows(op.d_v, kv_column);
  }
  job.lse = data_as<float>(op.lse) + (sequence * op.q.shape[1] + head * job.heads) * job.length;
  if (op.mask.segments) job.segments = data_as<int32_t>(op.mask.segments) + sequence * job.length;
  job.window = op.mask.window > 0 ? std::min(op.mask.window, job.length) : job.length;
  job.scale = op.scale;
  return job;
}

// How the queries of a sequence are cut: a function of the shape alone.
struct Chunks {
  int64_t size, count;
};
Chunks chunks_of(const Attention& op) {
  const int64_t tiles = (op.seq_len() + kTile - 1) / kTile, groups = op.batch * op.k.shape[1];
  const int64_t wanted = std::min(tiles, (kForwardTasks + groups - 1) / groups);
  const int64_t size = (tiles + wanted - 1) / wanted;
  return {size * kTile, (tiles + size - 1) / size};
}
void set_chunk(AttentionJob& job, const Chunks& chunks, int64_t chunk) {
  job.begin = chunk * chunks.size;
  job.end = std::min(job.length, job.begin + chunks.size);
}

// Of one worker, whichever kernels run.
size_t worker_bytes(const Attention& op) {
  AttentionJob job = job_of(op, 0, 0);
  const Chunks chunks = chunks_of(op);
  size_t bytes = 0;
  for (int64_t c = 0; c < chunks.count; ++c) {
    set_chunk(job, chunks, c);
    bytes = std::max({bytes, bytes_of<ForwardScratch>(job), bytes_of<PairForwardScratch>(job)});
  }
  return bytes;
}
size_t worker_bytes(const AttentionGrad& op) {
  const AttentionJob job = job_of(op, 0, 0);
  return std::max(bytes_of<BackwardScratch>(job), bytes_of<PairBackwardScratch>(job));
}

// f(task, worker's scratch) for `count` tasks.
template <class F>
void for_tasks(Stream& stream, const char* op, int64_t count, size_t worker_bytes, F&& f) {
  Pool& pool = pool_of(stream);
  const std::span<std::byte> scratch = stream.scratch();
  check(scratch.size() >= worker_bytes * size_t(pool.size()), Exit::device,
        "{}: wanted {} bytes of scratch for each of {} workers, found {}", op, worker_bytes, pool.size(),
        scratch.size());
  pool.tasks(count, [&](int64_t task, int worker) { f(task, scratch.data() + worker_bytes * size_t(worker)); });
}

// The kernel for an operation: of pairs of bf16 where the CPU and the operands allow, else the portable one.
AttentionKernel choose(const Tensor& q, AttentionKernel pairs, AttentionKernel f32, AttentionKernel bf16) {
  const int64_t width = q.shape[2];
  if (q.dtype == DType::bf16 && (width == 64 || width == 128) && cpu_level() == Level::avx512_bf16) return pairs;
  return q.dtype == DType::f32 ? f32 : bf16;
}

}  // namespace

size_t scratch_bytes(const Attention& op) { return worker_bytes(op) * size_t(planned_workers()); }
size_t scratch_bytes(const AttentionGrad& op) { return worker_bytes(op) * size_t(planned_workers()); }

void attend(Stream& stream, const Attention& op, AttentionKernel kernel) {
  check_operands(op);
  const int64_t kv_heads = op.k.shape[1], groups = op.batch * kv_heads;
  const Chunks chunks = chunks_of(op);
  for_tasks(stream, op.kName, groups * chunks.count, worker_bytes(op), [&](int64_t task, std::byte* scratch) {
    AttentionJob job = job_of(op, task % groups / kv_heads, task % kv_heads);
    set_chunk(job, chunks, chunks.count - 1 - task / groups);  // late queries see more keys: the longest tasks first
    kernel(job, scratch);
  });
}

void attend(Stream& stream, const AttentionGrad& op, AttentionKernel kernel) {
  check_operands(op);
  const int64_t kv_heads = op.k.shape[1];  // one task has all heads of a group: their sums have one order
  for_tasks(stream, op.kName, op.batch * kv_heads, worker_bytes(op),
            [&](int64_t task, std::byte* scratch) { kernel(job_of(op, task / kv_heads, task % kv_heads), scratch); });
}

void run(Stream& stream, const Attention& op) {
  attend(stream, op, choose(op.q, pair_forward, vector_forward<float>, vector_forward<bf16>));
}
void run(Stream& stream, const AttentionGrad& op) {
  attend(stream, op, choose(op.q, pair_backward, vector_backward<float>, vector_backward<bf16>));
}

}  // namespace trainer::cpu
