#include "parallel/comm/partial_sums.h"

#include <algorithm>
#include <vector>

#include "core/tensor/bf16.h"

namespace trainer {
namespace {

constexpr int64_t kBlock = 2048;  // elements: what is widened stays in the first-level cache

std::vector<const std::byte*> sources(const std::byte* before, std::span<const std::byte* const> from) {
  std::vector<const std::byte*> all;
  if (before) all.push_back(before);
  all.insert(all.end(), from.begin(), from.end());
  return all;
}

// Sums of a block of bf16 tensors, in fp32.
class Widened {
 public:
  Widened(Comm::Reduce op, const std::byte* before, std::span<const std::byte* const> from)
      : op_(op), before_(before), from_(from), blocks_(from.size() * kBlock) {}
  void sum(int64_t begin, int64_t n, float* to) {
    std::vector<const std::byte*> parts;
    if (before_) parts.push_back(before_ + size_t(begin) * sizeof(float));
    for (size_t r = 0; r < from_.size(); ++r) {
      const bf16* x = reinterpret_cast<const bf16*>(from_[r]) + begin;
      float* wide = blocks_.data() + r * kBlock;
      for (int64_t i = 0; i < n; ++i) wide[i] = to_float(x[i]);
      parts.push_back(reinterpret_cast<const std::byte*>(wide));
    }
    std::byte* out = reinterpret_cast<std::byte*>(to);
    reduce({op_, DType::f32}, parts, {&out, 1}, n);
  }

 private:
  const Comm::Reduce op_;
  const std::byte* before_;
  const std::span<const std::byte* const> from_;
  std::vector<float> blocks_;
};

}  // namespace

DType accumulator_of(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

void add_partial(const Reduction& r, const std::byte* before, std::span<const std::byte* const> from, std::byte* to,
                 int64_t elements) {
  if (r.dtype != DType::bf16) return reduce(r, sources(before, from), {&to, 1}, elements);
  Widened widened(r.op, before, from);
  for (int64_t i = 0; i < elements; i += kBlock)
    widened.sum(i, std::min(kBlock, elements - i), reinterpret_cast<float*>(to) + i);
}

void finish_partial(const Reduction& r, const std::byte* before, std::span<const std::byte* const> from, std::byte* to,
                    int64_t elements) {
  if (r.dtype != DType::bf16) return reduce(r, sources(before, from), {&to, 1}, elements);
  Widened widened(r.op, before, from);
  float sums[kBlock];
  for (int64_t i = 0; i < elements; i += kBlock) {
    const int64_t n = std::min(kBlock, elements - i);
    widened.sum(i, n, sums);
    for (int64_t k = 0; k < n; ++k) reinterpret_cast<bf16*>(to)[i + k] = to_bf16(sums[k]);
  }
}

}  // namespace trainer
