// What a worker keeps while it runs a task of attention: for the portable kernels rows as f32 at one stride, for the
// bf16 kernels pairs of bf16. Where tiles go beyond the sequence there are zeros. Sizes do not depend on the CPU, since
// plans must not.
//
// Included by units built for newer CPUs than the rest: everything here is inlined.
#pragma once
#include "kernels/cpu/attention_job.h"

namespace trainer::cpu {

// Hands out pieces of a block of memory, or only counts them where there is none yet.
class Carver {
 public:
  [[gnu::always_inline]] explicit Carver(std::byte* memory) : memory_(memory) {}
  template <class T>
  [[gnu::always_inline]] T* take(int64_t count) {
    std::byte* piece = memory_ ? memory_ + used_ : nullptr;
    used_ += round_up(count * int64_t(sizeof(T)), 128);
    return reinterpret_cast<T*>(piece);
  }
  [[gnu::always_inline]] size_t used() const { return size_t(used_); }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

// Rows are a cache line longer than needed: else a column of a tile falls into few sets of the first-level cache.
[[gnu::always_inline]] inline int64_t scratch_stride(int64_t width) { return round_up(width, 16) + 16; }

// The first key that the queries of a task may see, at the beginning of a tile.
[[gnu::always_inline]] inline int64_t first_key(const AttentionJob& job, int64_t tile) {
  return round_down(larger(0, job.begin - job.window + 1), tile);
}

// Segments of the keys from `first` on, `count` of them, since tiles load whole vectors.
[[gnu::always_inline]] inline void copy_segments(const AttentionJob& job, int64_t first, int64_t count, int32_t* to) {
  if (!job.segments) return;
  for (int64_t i = 0; i < count; ++i) to[i] = first + i < job.length ? job.segments[first + i] : 0;
}

struct ForwardScratch {
  int64_t first, keys, stride;                    // the first key packed, how many, and from one row to the next
  float *k_panels, *v;                            // keys [keys / panel][width][panel]; values [keys][stride]
  float *q, *out, *weights, *top, *sum, *factor;  // of a tile of queries
  int32_t* segments;

  ForwardScratch(const AttentionJob& job, Carver& memory)
      : first(first_key(job, kTile)), keys(round_up(job.end - first, kTile)), stride(scratch_stride(job.width)) {
    k_panels = memory.take<float>(keys * job.width);
    v = memory.take<float>(keys * stride);
    q = memory.take<float>(kTile * stride);
    out = memory.take<float>(kTile * stride);
    weights = memory.take<float>(kTile * kTile);
    top = memory.take<float>(kTile);
    sum = memory.take<float>(kTile);
    factor = memory.take<float>(kTile);
    segments = memory.take<int32_t>(keys);
  }
};

struct BackwardScratch {
  int64_t rows, stride;
  float *k_panels, *v_panels, *k;           // of the keys
  float *q, *d_out, *d_q, *d_k, *d_v;       // of one head; d_k and d_v of the group
  float *lse, *delta, *weights, *d_scores;  // [rows], [rows], and two tiles
  int32_t* segments;

  BackwardScratch(const AttentionJob& job, Carver& memory)
      : rows(round_up(job.length, kTile)), stride(scratch_stride(job.width)) {
    k_panels = memory.take<float>(rows * job.width);
    v_panels = memory.take<float>(rows * job.width);
    k = memory.take<float>(rows * stride);
    q = memory.take<float>(rows * stride);
    d_out = memory.take<float>(rows * stride);
    d_q = memory.take<float>(rows * stride);
    d_k = memory.take<float>(rows * stride);
    d_v = memory.take<float>(rows * stride);
    lse = memory.take<float>(rows);
    delta = memory.take<float>(rows);
    weights = memory.take<float>(kTile * kTile);
    d_scores = memory.take<float>(kTile * kTile);
    segments = memory.take<int32_t>(rows);
  }
};

inline constexpr int64_t kPairKeys = 128;  // keys of a tile of the bf16 kernels
inline constexpr int64_t kWeightRow =
    kPairKeys + 32;  // a row of weights in bf16: more than its keys, for the cache's sets
inline constexpr int64_t kWeightPairRow = kPairKeys + 16;

struct PairForwardScratch {
  int64_t first, keys;
  uint32_t *k_panels, *v_pairs;  // keys [keys / kPairKeys][width / 2][kPairKeys]; values [keys / 2][width]
  float *out, *scores, *top, *sum, *factor;
  bf16* weights;
  int32_t* segments;

  [[gnu::always_inline]] PairForwardScratch(const AttentionJob& job, Carver& memory)
      : first(first_key(job, kPairKeys)), keys(round_up(job.end - first, kPairKeys)) {
    k_panels = memory.take<uint32_t>(keys * job.width / 2);
    v_pairs = memory.take<uint32_t>(keys * job.width / 2);
    out = memory.take<float>(kTile * job.width);
    scores = memory.take<float>(kRegisterRows * kPairKeys);
    top = memory.take<float>(kTile);
    sum = memory.take<float>(kTile);
    factor = memory.take<float>(kTile);
    weights = memory.take<bf16>(kTile * kWeightRow);
    segments = memory.take<int32_t>(keys);
  }
};

struct PairBackwardScratch {
  int64_t rows;
  uint32_t *k_panels, *v_panels, *k_pairs, *q_pairs, *d_out_pairs;
  float *d_q, *d_k, *d_v, *lse, *delta, *panel;
  uint32_t *weight_pairs, *d_score_pairs;  // of two queries each
  bf16* d_scores;
  int32_t* segments;

  [[gnu::always_inline]] PairBackwardScratch(const AttentionJob& job, Carver& memory)
      : rows(round_up(job.length, kPairKeys) +
             kTile) {  // the last tile of queries may begin anywhere in the last of keys
    k_panels = memory.take<uint32_t>(rows * job.width / 2);
    v_panels = memory.take<uint32_t>(rows * job.width / 2);
    k_pairs = memory.take<uint32_t>(rows * job.width / 2);
    q_pairs = memory.take<uint32_t>(rows * job.width / 2);
    d_out_pairs = memory.take<uint32_t>(rows * job.width / 2);
    d_q = memory.take<float>(rows * job.width);
    d_k = memory.take<float>(rows * job.width);
    d_v = memory.take<float>(rows * job.width);
    lse = memory.take<float>(rows);
    delta = memory.take<float>(rows);
    panel = memory.take<float>(kRegisterRows * 64);
    weight_pairs = memory.take<uint32_t>(kTile / 2 * kWeightPairRow);
    d_score_pairs = memory.take<uint32_t>(kTile / 2 * kWeightPairRow);
    d_scores = memory.take<bf16>(kTile * kWeightRow);
    segments = memory.take<int32_t>(rows);
  }
};

// Bytes of a Scratch for this job.
template <class Scratch>
size_t bytes_of(const AttentionJob& job) {
  Carver count(nullptr);
  Scratch(job, count);
  return count.used();
}

}  // namespace trainer::cpu
