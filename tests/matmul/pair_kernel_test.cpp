// The AVX512-BF16 kernel, emulated, so that it is tested on every CPU.
#include "tests/support/avx512_emulated.h"
// The emulation comes first.
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_pair.h"
#include "tests/matmul/product.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::cpu;
using namespace trainer::test;

namespace {

constexpr MatMulKernel kEmulated{kPairRows, kPairColumns, kPairDepth, 2, pack_pairs, multiply_pairs};

void check_product(const ProductCase& p) {
  CAPTURE(p.m, p.n, p.k, name_of(p.out), p.transpose_a, p.transpose_b, p.accumulate);
  const ProductData data(p);
  const Values wanted = data.wanted();
  const size_t bytes = scratch_bytes(data.op, kEmulated, 2);
  const std::unique_ptr<std::byte, void (*)(void*)> scratch(static_cast<std::byte*>(std::aligned_alloc(128, bytes)),
                                                            &std::free);
  Pool pool(2, false);
  multiply(pool, data.op, {scratch.get(), bytes}, kEmulated);
  require_close(data.c, wanted, rounded_once(p.out, std::sqrt(double(p.k)) + 1));
}

}  // namespace

TEST_CASE("emulated pairs: odd shapes, every transpose, both results") {
  for (DType out : {DType::f32, DType::bf16})
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        for (int64_t m : {1, 7, 66})
          for (int64_t n : {1, 65, 130})
            for (int64_t k : {1, 3, 64}) check_product({m, n, k, DType::bf16, out, ta, tb});
}

TEST_CASE("emulated pairs: weight gradients add up over blocks of an odd depth") {
  for (bool accumulate : {false, true}) {
    check_product({97, 67, 1027, DType::bf16, DType::f32, true, false, accumulate});
    check_product({7, 65, 3001, DType::bf16, DType::f32, true, false, accumulate});
  }
}

TEST_CASE("emulated pairs: bias, residual and strided rows") {
  check_product({35, 67, 37, DType::bf16, DType::bf16, false, true, false, true, true, {.gap = 3, .shift = 1}});
  check_product({35, 67, 37, DType::bf16, DType::f32, true, false, true, false, false, {.gap = 3, .shift = 1}});
}
