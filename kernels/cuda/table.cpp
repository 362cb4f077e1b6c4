#include "kernels/cuda/table.h"

#include "core/ops/every_op.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/matmul.h"

namespace trainer::cuda {
namespace {

template <class Op>
void install_kernel() {
  auto& gpu = Kernel<Op>::on(DeviceKind::cuda);
  gpu.run = [](Stream& stream, const void* args) { run(stream, *static_cast<const Op*>(args)); };
  if constexpr (requires(const Op& op) { scratch_bytes(op); })
    gpu.scratch = [](const Op& op) { return scratch_bytes(op); };
  // Whatever lane is asked for, it is the call's (core/engine/preparing.h).
  if constexpr (requires(Stream & stream, const Op& op) { prepare(stream, op); })
    gpu.prepare = [](Device& device, const Op& op) { prepare(device.lane(Lane::compute), op); };
  Kernel<Op>::on(DeviceKind::meter).scratch = gpu.scratch;  // plans for a GPU are metered with the GPU's workspaces
}

}  // namespace

void install_cuda_kernels() {
  for_every_op([]<class Op>() { install_kernel<Op>(); });
}

}  // namespace trainer::cuda
