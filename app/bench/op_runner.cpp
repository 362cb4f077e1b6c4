#include "app/bench/op_runner.h"

#include <cstring>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/tensor/bf16.h"

namespace trainer {
namespace {
constexpr size_t kScratch = size_t{512} << 20;
}

OpRunner::OpRunner(int threads, size_t bytes) : arena_(memory_.reserve(kScratch + bytes)), top_(kScratch) {
  cpu::ScratchMap scratch;
  scratch.bytes[size_t(Lane::compute)] = kScratch;
  device_ = std::make_unique<cpu::CpuDevice>(arena_, scratch, cpu::CpuOptions{.threads = threads});
}

void OpRunner::require_scratch(const char* op, size_t bytes) const {
  check(bytes <= kScratch, Exit::memory,
        "[bench] {} wants {} bytes of scratch, the bench has {}; choose a smaller shape", op, bytes, kScratch);
}

void OpRunner::reset() { top_ = kScratch; }

Tensor OpRunner::take_zero(DType dtype, Shape shape) {
  const Tensor t = make_tensor(arena_.data() + top_, dtype, shape);
  check(top_ + t.bytes() <= arena_.size(), Exit::memory, "[bench] its arena of {} bytes is too small", arena_.size());
  top_ = (top_ + t.bytes() + 127) / 128 * 128;
  std::memset(t.data, 0, t.bytes());
  return t;
}

Tensor OpRunner::take(DType dtype, Shape shape) {
  const Tensor t = take_zero(dtype, shape);
  for (int64_t i = 0, n = t.elements(); i < n; ++i) {
    const float x = float(scramble(uint64_t(i)) >> 40) / 8388608.0f - 1.0f;
    if (dtype == DType::f32) data_as<float>(t)[i] = x;
    else if (dtype == DType::bf16) data_as<bf16>(t)[i] = to_bf16(x);
  }
  return t;
}

}  // namespace trainer
