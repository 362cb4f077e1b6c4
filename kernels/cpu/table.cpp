#include "kernels/cpu/table.h"

#include "core/ops/every_op.h"
#include "kernels/cpu/install.h"
#include "kernels/cpu/workers.h"

namespace trainer::cpu {

void install_cpu_kernels(int workers) {
  set_planned_workers(workers);
  for_every_op([]<class Op>() { install_kernel<Op>(); });
}

}  // namespace trainer::cpu
