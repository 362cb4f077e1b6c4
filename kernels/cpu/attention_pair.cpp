#include "kernels/cpu/attention_pair.h"

#include "kernels/cpu/attention_pair_kernels.h"

namespace trainer::cpu {

void pair_forward(const AttentionJob& job, std::byte* scratch) {
  job.width == 64 ? forward_of<64>(job, scratch) : forward_of<128>(job, scratch);
}
void pair_backward(const AttentionJob& job, std::byte* scratch) {
  job.width == 64 ? backward_of<64>(job, scratch) : backward_of<128>(job, scratch);
}

}  // namespace trainer::cpu
