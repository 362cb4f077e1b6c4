#include "kernels/cuda/refuse.h"

#include "core/base/error.h"

namespace trainer::cuda {

void refuse_dtype(const char* op, DType found) {
  fail(Exit::device, "{}: wanted f32 or bf16, found a tensor of {}", op, name_of(found));
}
void refuse_dtypes(const char* op, DType found, DType beside) {
  fail(Exit::device, "{}: wanted tensors of one dtype, found {} beside {}", op, name_of(found), name_of(beside));
}
void refuse_rate(const char* op, float rate) {
  fail(Exit::device, "{}: wanted a rate within [0, 1), found {}", op, rate);
}
void refuse_head_width(const char* op, int64_t found, int64_t most) {
  fail(Exit::device, "{}: wanted an even head width of at most {}, found {}", op, most, found);
}
void refuse_size(const char* op, const char* what, int64_t found, int64_t wanted) {
  fail(Exit::device, "{}: wanted {} of {} elements, found {}", op, what, wanted, found);
}

}  // namespace trainer::cuda
