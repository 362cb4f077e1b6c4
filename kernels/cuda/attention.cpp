#include "kernels/cuda/attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <initializer_list>

#include "core/base/error.h"
#include "kernels/cuda/attention_job.h"
#include "kernels/cuda/kernels.h"

namespace trainer::cuda {
namespace {

HeadRows rows_of(const Tensor& t) { return {t.data, t.stride()}; }

// What both directions have; a grid has at most 65535 blocks in its second and third dimension.
template <class Op>
AttentionJob job_of(const Op& op) {
  check_operands(op);
  check(op.seq_len() < 1 << 30 && op.batch < 1 << 16 && op.q.shape[1] < 1 << 16, Exit::device,
        "{}: wanted fewer than 65536 sequences and heads, found {} and {}", op.kName, op.batch, op.q.shape[1]);
  AttentionJob job;
  job.batch = int(op.batch);
  job.length = int(op.seq_len());
  job.heads = int(op.q.shape[1]);
  job.kv_heads = int(op.k.shape[1]);
  job.width = int(op.q.shape[2]);
  job.q = rows_of(op.q);
  job.k = rows_of(op.k);
  job.v = rows_of(op.v);
  job.out = rows_of(op.out);
  job.lse = data_as<float>(op.lse);
  if (op.mask.segments) job.segments = data_as<int32_t>(op.mask.segments);
  job.window = op.mask.window > 0 ? int(std::min<int64_t>(op.mask.window, job.length)) : job.length;
  job.scale = op.scale;
  job.dtype = op.q.dtype;
  return job;
}

template <class Op>
size_t range_bytes(const Op& op) {
  const size_t bytes = sizeof(SegmentRange) * size_t(op.batch * ranges_of(int(op.seq_len())));
  return (bytes + 127) / 128 * 128;
}
// Ranges of segments lie at the beginning of the scratch.
template <class Op>
void use_scratch(Stream& stream, const Op& op, AttentionJob& job) {
  const std::span<std::byte> scratch = stream.scratch();
  check(scratch.size() >= scratch_bytes(op), Exit::device, "{}: wanted {} bytes of scratch, found {}", op.kName,
        scratch_bytes(op), scratch.size());
  job.range_count = ranges_of(job.length);
  job.ranges = reinterpret_cast<SegmentRange*>(scratch.data());
  if (job.segments) find_segment_ranges(stream, job);
}

bool vectors_fit(std::initializer_list<const Tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor* t) {
    return reinterpret_cast<uintptr_t>(t->data) % 16 == 0 && t->stride() % 8 == 0;
  });
}
bool tensor_cores_have(const Tensor& q) {
  const int64_t width = q.shape[2];
  return q.dtype == DType::bf16 && (width == 64 || width == 96 || width == 128);
}

// Where there is no device, a plan is made for one that nobody knows yet.
bool device_has_wgmma() {
  int device = 0, major = 0, minor = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  if (!known) cudaGetLastError();
  return major == 9 && minor == 0;
}
AttentionPath path_of(bool tensor_cores) {
  if (!tensor_cores) return AttentionPath::generic;
  return device_has_wgmma() ? AttentionPath::warp_group : AttentionPath::tensor_core;
}

}  // namespace

AttentionPath attention_path(const Attention& op) {
  return path_of(tensor_cores_have(op.q) && vectors_fit({&op.q, &op.k, &op.v, &op.out}));
}
AttentionPath attention_path(const AttentionGrad& op) {
  return path_of(tensor_cores_have(op.q) &&
                 vectors_fit({&op.q, &op.k, &op.v, &op.out, &op.d_out, &op.d_q, &op.d_k, &op.d_v}));
}
std::string_view name_of(AttentionPath path) {
  switch (path) {
    case AttentionPath::generic: return "generic";
    case AttentionPath::tensor_core: return "tensor_core";
    case AttentionPath::warp_group: return "warp_group";
  }
  return "unknown";
}

size_t scratch_bytes(const Attention& op) { return range_bytes(op); }
size_t scratch_bytes(const AttentionGrad& op) {
  return range_bytes(op) + sizeof(float) * size_t(op.q.shape[0] * op.q.shape[1]);
}

void run(Stream& stream, const Attention& op) {
  AttentionJob job = job_of(op);
  use_scratch(stream, op, job);
  switch (attention_path(op)) {
    case AttentionPath::generic: return attend_generic(stream, job);
    case AttentionPath::tensor_core: return attend_tensor_core(stream, job);
    case AttentionPath::warp_group: return attend_warp_group(stream, job);
  }
}

void run(Stream& stream, const AttentionGrad& op) {
  AttentionJob job = job_of(op);
  job.d_out = rows_of(op.d_out);
  job.d_q = rows_of(op.d_q);
  job.d_k = rows_of(op.d_k);
  job.d_v = rows_of(op.d_v);
  use_scratch(stream, op, job);
  job.delta = reinterpret_cast<float*>(stream.scratch().data() + range_bytes(op));
  find_delta(stream, job);
  switch (attention_path(op)) {
    case AttentionPath::generic: return attend_generic_grad(stream, job);
    case AttentionPath::tensor_core:
      attend_tensor_core_grad_q(stream, job);
      return attend_tensor_core_grad_kv(stream, job);
    case AttentionPath::warp_group:
      attend_warp_group_grad_q(stream, job);
      return attend_warp_group_grad_kv(stream, job);
  }
}

void run(Stream& stream, const AttentionDecode& op) {
  check_operands(op);
  check(op.q.shape[0] < 1 << 16, Exit::device, "{}: wanted fewer than 65536 sequences, found {}", op.kName,
        op.q.shape[0]);
  DecodeJob job;
  job.batch = int(op.q.shape[0]);
  job.heads = int(op.q.shape[1]);
  job.kv_heads = int(op.kv_heads);
  job.width = int(op.q.shape[2]);
  job.length = int(op.length);
  job.first = int(op.window > 0 ? std::max<int64_t>(0, op.length - op.window) : 0);
  job.q = op.q.data;
  job.out = op.out.data;
  job.keys = op.k_cache.data;
  job.values = op.v_cache.data;
  job.q_stride = op.q.stride();
  job.out_stride = op.out.stride();
  job.keys_stride = op.k_cache.stride();
  job.values_stride = op.v_cache.stride();
  job.scale = op.scale;
  attend_decode(stream, job, op.q.dtype);
}

}  // namespace trainer::cuda
