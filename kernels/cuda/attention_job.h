// Attention as its kernels see it: pointers, strides and sizes that were checked before.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/device/device.h"

namespace trainer::cuda {

// Head h of row t of sequence b begins ((b * length + t) * stride + h * width) elements behind `data`.
struct HeadRows {
  std::byte* data = nullptr;
  int64_t stride = 0;
};

// The lowest and the highest segment among kRangeRows rows of a sequence: tiles whose ranges do not meet are skipped.
struct SegmentRange {
  int32_t low, high;
};
inline constexpr int kRangeRows = 64;
constexpr int ranges_of(int length) { return (length + kRangeRows - 1) / kRangeRows; }

inline constexpr float kLog2E = 1.44269504088896341f;

struct AttentionJob {
  int batch = 0, length = 0, heads = 0, kv_heads = 0, width = 0;
  HeadRows q, k, v, out, d_out, d_q, d_k, d_v;
  float* lse = nullptr;               // [batch, heads, length], base 2
  float* delta = nullptr;             // [batch, heads, length]: of each row of d_out, its product with that of out
  const int32_t* segments = nullptr;  // [batch, length] or none
  SegmentRange* ranges = nullptr;     // [batch, range_count], where there are segments
  int range_count = 0;                // ranges_of(length)
  int window = 0;                     // > 0: none is given as length, which hides nothing
  float scale = 0;
  DType dtype = DType::f32;  // or bf16
};

// `ranges` from `segments`; `delta` from `out` and `d_out`.
void find_segment_ranges(Stream&, const AttentionJob&);
void find_delta(Stream&, const AttentionJob&);

void attend_generic(Stream&, const AttentionJob&);
void attend_generic_grad(Stream&, const AttentionJob&);

// bf16, width 64, 96 or 128, rows at multiples of 16 bytes.
void attend_tensor_core(Stream&, const AttentionJob&);
void attend_tensor_core_grad_q(Stream&, const AttentionJob&);
void attend_tensor_core_grad_kv(Stream&, const AttentionJob&);

// The same by wgmma and bulk copies, on sm_90 alone.
void attend_warp_group(Stream&, const AttentionJob&);
void attend_warp_group_grad_q(Stream&, const AttentionJob&);
void attend_warp_group_grad_kv(Stream&, const AttentionJob&);

// One query per sequence against the rows [first, length) of a cache, whose heads lie side by side.
struct DecodeJob {
  int batch = 0, first = 0, length = 0, heads = 0, kv_heads = 0, width = 0;
  std::byte *q = nullptr, *out = nullptr, *keys = nullptr, *values = nullptr;
  int64_t q_stride = 0, out_stride = 0, keys_stride = 0, values_stride = 0;  // from one sequence to the next
  float scale = 0;
};
void attend_decode(Stream&, const DecodeJob&, DType);

}  // namespace trainer::cuda
