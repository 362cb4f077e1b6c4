#include "core/engine/preparing.h"

#include "core/ops/every_op.h"

namespace trainer {

void PreparingStream::submit(void (*)(Stream&, const void*), const void* args, size_t) {
  for_every_op([&]<class Op>() {
    if (const auto prepare = Kernel<Op>::on(kind()).prepare; prepare && op_ == Op::kName)
      prepare(device_, *static_cast<const Op*>(args));
  });
  op_.clear();
}

}  // namespace trainer
