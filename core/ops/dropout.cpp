#include "core/base/philox.h"
#include "core/ops/elementwise.h"

namespace trainer {

bool dropout_keeps(uint64_t key, uint64_t seed, int64_t step, uint64_t index, float rate) {
  const Philox4 draw = philox(key ^ seed, index / 4, uint64_t(step));
  return uniform_open(draw[index % 4]) >= double(rate);
}

}  // namespace trainer
