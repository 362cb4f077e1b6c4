#include "kernels/cpu/matmul_pair.h"

namespace trainer::cpu {

const MatMulKernel& pair_kernel() {
  static constexpr MatMulKernel kKernel{kPairRows, kPairColumns, kPairDepth, 2, pack_pairs, multiply_pairs};
  return kKernel;
}

}  // namespace trainer::cpu
