#include "core/ops/kernel.h"

#include "core/base/error.h"

namespace trainer {

void refuse_launch(const char* op) { fail(Exit::device, "{}: no kernel on this device", op); }

}  // namespace trainer
