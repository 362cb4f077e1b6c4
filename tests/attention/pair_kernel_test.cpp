// The AVX512-BF16 attention kernels, emulated, so that they are tested on every CPU.
#include "tests/support/avx512_emulated.h"
// The emulation comes first.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_pair_kernels.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/workers.h"
#include "tests/attention/check.h"

using namespace trainer;
using namespace trainer::test;

namespace {

template <int kWidth>
void run_here(Stream& stream, const Attention& op) {
  cpu::attend(stream, op, cpu::forward_of<kWidth>);
}
template <int kWidth>
void run_here(Stream& stream, const AttentionGrad& op) {
  cpu::attend(stream, op, cpu::backward_of<kWidth>);
}

// As run_op, with the emulated kernels.
template <class Op>
void run_emulated(const Op& op) {
  cpu::set_planned_workers(2);
  const size_t bytes = cpu::scratch_bytes(op);
  const std::unique_ptr<std::byte, void (*)(void*)> arena(static_cast<std::byte*>(std::aligned_alloc(128, bytes)),
                                                          &std::free);
  cpu::ScratchMap scratch;
  scratch.bytes[size_t(Lane::compute)] = bytes;
  cpu::CpuDevice device({arena.get(), bytes}, scratch, {.threads = 2, .pin = false});
  const auto run = op.q.shape[2] == 64
                       ? +[](Stream& s, const void* o) { run_here<64>(s, *static_cast<const Op*>(o)); }
                       : +[](Stream& s, const void* o) { run_here<128>(s, *static_cast<const Op*>(o)); };
  device.lane(Lane::compute).submit(run, &op, sizeof op);
  device.drain();
}

void check_case(AttentionCase c) {
  c.dtype = DType::bf16;
  check_attention(
      c, [](const Attention&) { return kRoundedWeights; }, [](const auto& op) { run_emulated(op); });
}

}  // namespace

TEST_CASE("emulated pairs: attention at odd lengths") {
  for (int64_t width : {64, 128})
    for (int64_t length : {1, 2, 3, 17, 63, 65, 131}) check_case({.length = length, .width = width});
  check_case({.length = 257, .width = 64});
}

TEST_CASE("emulated pairs: attention with grouped heads and strided rows") {
  check_case({.batch = 2, .length = 99, .heads = 4, .kv_heads = 2, .width = 64, .gap = 2});
  check_case({.length = 70, .heads = 3, .kv_heads = 1, .width = 128, .gap = 6});
}

TEST_CASE("emulated pairs: attention with windows and documents") {
  for (int64_t window : {1, 7, 64, 65, 100, 150})
    check_case({.length = 231, .heads = 2, .kv_heads = 1, .width = 64, .window = window});
  for (int documents : {1, 3, 1000})
    for (int64_t window : {0, 40})
      check_case({.batch = 2, .length = 143, .width = 64, .window = window, .documents = documents});
}
