#include "kernels/cuda/table.h"

#include "kernels/cuda/kernels.h"

namespace trainer::cuda {
namespace {

template <class Op>
void install_kernel() {
  auto& gpu = Kernel<Op>::on(DeviceKind::cuda);
  gpu.run = [](Stream& stream, const void* args) { run(stream, *static_cast<const Op*>(args)); };
  if constexpr (requires(const Op& op) { scratch_bytes(op); })
    gpu.scratch = [](const Op& op) { return scratch_bytes(op); };
  Kernel<Op>::on(DeviceKind::meter).scratch = gpu.scratch;  // plans for a GPU are metered with the GPU's workspaces
}

}  // namespace

void install_cuda_kernels() {
  install_kernel<Begin>();
  install_kernel<Note>();
  install_kernel<Tell>();
  install_kernel<Agree>();
  install_kernel<MatMul>();
  install_kernel<RmsNorm>();
  install_kernel<RmsNormGrad>();
  install_kernel<LayerNorm>();
  install_kernel<LayerNormGrad>();
  install_kernel<Rope>();
  install_kernel<Attention>();
  install_kernel<AttentionGrad>();
  install_kernel<AttentionDecode>();
  install_kernel<Gelu>();
  install_kernel<GeluGrad>();
  install_kernel<SwiGlu>();
  install_kernel<SwiGluGrad>();
  install_kernel<Embedding>();
  install_kernel<EmbeddingGrad>();
  install_kernel<LogitRecords>();
  install_kernel<CrossEntropy>();
  install_kernel<Copy>();
  install_kernel<Upload>();
  install_kernel<Add>();
  install_kernel<Scale>();
  install_kernel<Zero>();
  install_kernel<ColumnSum>();
  install_kernel<Dropout>();
  install_kernel<SquaredNorm>();
  install_kernel<AdamW>();
}

}  // namespace trainer::cuda
