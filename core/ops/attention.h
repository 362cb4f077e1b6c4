// Causal attention with grouped heads, an optional sliding window and optional documents, in O(T) memory: online softmax forward
// (Milakov, Gimelshein 2018; Dao et al. 2022), recomputing backward (Dao 2023).
#pragma once
#include "core/ops/kernel.h"

namespace trainer {

// Query t sees keys s with s <= t, t - s < window (where window > 0), and segments[t] == segments[s] (where given).
struct AttentionMask {
  int64_t window = 0;   // 0: none
  Tensor segments;      // i32 [B * T] or empty
};

// Pairs (query, key) of one sequence of T that a causal mask with this window leaves; documents are not known here.
constexpr double visible_pairs(int64_t T, int64_t window) {
  const double t = double(T);
  if (window <= 0 || window >= T) return t * (t + 1) / 2;
  const double w = double(window);
  return w * (w + 1) / 2 + (t - w) * w;
}

// out = softmax(q k^T * scale, masked) v, per sequence and head. q [N, H, D], k, v [N, K, D], out [N, H, D] (rows may be strided),
// N = batch * T. H is a multiple of K: query head h reads kv head h / (H / K). lse f32 [batch, H, T]: the row's log-sum-exp of the
// scaled scores, in base 2 (log2).
struct Attention {
  static constexpr const char* kName = "attention";
  Tensor out, lse, q, k, v;
  AttentionMask mask;
  int64_t batch = 1;
  float scale = 0;
  int64_t seq_len() const { return q.shape[0] / batch; }
  Cost cost() const {
    const double pairs = double(batch) * double(q.shape[1]) * visible_pairs(seq_len(), mask.window);
    return {4 * pairs * double(q.shape[2]), double(q.bytes() + k.bytes() + v.bytes() + out.bytes() + lse.bytes())};
  }
};

struct AttentionGrad {
  static constexpr const char* kName = "attention_grad";
  Tensor d_q, d_k, d_v;                 // written, not added to
  Tensor d_out, out, lse, q, k, v;
  AttentionMask mask;
  int64_t batch = 1;
  float scale = 0;
  int64_t seq_len() const { return q.shape[0] / batch; }
  Cost cost() const {
    const double pairs = double(batch) * double(q.shape[1]) * visible_pairs(seq_len(), mask.window);
    return {10 * pairs * double(q.shape[2]),
            double(2 * (q.bytes() + k.bytes() + v.bytes()) + d_out.bytes() + out.bytes() + lse.bytes())};
  }
};

// One new token per sequence against a cache (generation). q [B, H, D]; k_cache, v_cache [B, capacity, K * D], of which rows
// [0, length) hold keys and values, the newest included; out [B, H, D].
struct AttentionDecode {
  static constexpr const char* kName = "attention_decode";
  Tensor out, q, k_cache, v_cache;
  int64_t length = 0, window = 0, kv_heads = 0;
  float scale = 0;
  Cost cost() const {
    return {4.0 * double(q.elements()) * double(length), 2.0 * double(length * k_cache.shape[2] * q.shape[0]) * double(size_of(q.dtype))};
  }
};

// What every backend wants of the operands: throws Error(device) where shapes, dtypes (f32 or bf16, one for all) or strides do not
// belong together.
inline constexpr int64_t kMaxHeadWidth = 256;
void check_operands(const Attention&);
void check_operands(const AttentionGrad&);
void check_operands(const AttentionDecode&);

}  // namespace trainer
