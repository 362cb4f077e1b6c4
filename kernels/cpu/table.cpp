#include "kernels/cpu/table.h"

#include "kernels/cpu/install.h"
#include "kernels/cpu/workers.h"

namespace trainer::cpu {

void install_cpu_kernels(int workers) {
  set_planned_workers(workers);
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

}  // namespace trainer::cpu
