#include "app/bench/op_runner.h"

#include <vector>

#include "app/algorithms.h"
#include "app/wire.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/tensor/bf16.h"

namespace trainer {
namespace {

// On a GPU the largest is cuBLASLt's workspace.
size_t scratch_of(const DeviceSpec& spec) { return size_t{device_kind(spec) == DeviceKind::cuda ? 64u : 512u} << 20; }
size_t in_arena(size_t bytes) { return (bytes + 127) / 128 * 128; }

}  // namespace

OpRunner::OpRunner(const DeviceSpec& spec, size_t bytes)
    : scratch_(scratch_of(spec)),
      memory_(open_memory(device_kind(spec))),
      arena_(memory_->reserve(scratch_ + bytes)),
      top_(scratch_) {
  Program program;
  program.scratch[size_t(Lane::compute)] = scratch_;
  device_ = open_device(spec, program, arena_);
  stopwatch_ = open_stopwatch(*device_);
}

void OpRunner::require_scratch(const char* op, size_t bytes) const {
  check(bytes <= scratch_, Exit::memory,
        "[bench] {} wants {} bytes of scratch, the bench has {}; choose a smaller shape", op, bytes, scratch_);
}

void OpRunner::refuse_plain_products() const {
  if (device_->kind() == DeviceKind::cuda) check_products(/*plain_allowed=*/false);
}

void OpRunner::reset() { top_ = scratch_; }

Tensor OpRunner::take_zero(DType dtype, Shape shape) {
  const Tensor t = make_tensor(arena_.data() + top_, dtype, shape);
  check(top_ + t.bytes() <= arena_.size(), Exit::memory, "[bench] its arena of {} bytes is too small", arena_.size());
  top_ += in_arena(t.bytes());
  device_->upload(t.data, std::vector<std::byte>(t.bytes()));
  return t;
}

Tensor OpRunner::take(DType dtype, Shape shape) {
  const Tensor t = take_zero(dtype, shape);
  std::vector<std::byte> bytes(t.bytes());
  const Tensor host = make_tensor(bytes.data(), dtype, shape);
  for (int64_t i = 0, n = t.elements(); i < n; ++i) {
    const float x = float(scramble(uint64_t(i)) >> 40) / 8388608.0f - 1.0f;
    if (dtype == DType::f32) data_as<float>(host)[i] = x;
    else if (dtype == DType::bf16) data_as<bf16>(host)[i] = to_bf16(x);
  }
  device_->upload(t.data, bytes);
  return t;
}

}  // namespace trainer
