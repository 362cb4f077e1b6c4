// Where the AVX512-BF16 kernels take their instructions from: the compiler, in translation units built with
// TRAINER_AVX512_BF16_FLAGS (matmul.cmake); or, in tests on any CPU, tests/support/avx512_emulated.h, included first.
#pragma once
#ifndef TRAINER_AVX512_EMULATED
#ifndef __AVX512BF16__
#error "compile with TRAINER_AVX512_BF16_FLAGS, or include the emulation first"
#endif
#include <immintrin.h>
#endif
