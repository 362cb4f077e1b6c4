// The GPU's kernels: one `run` per operation, which enqueues on the stream at once. Contracts stand with the operations
// in core/ops.
//
// A kernel's results depend on shapes and values only: grids are fixed, sums have a fixed order.
#pragma once
#include "core/ops/ops.h"

namespace trainer::cuda {

void run(Stream&, const Begin&);
void run(Stream&, const Note&);
void run(Stream&, const Tell&);
void run(Stream&, const Stamp&);
void run(Stream&, const Agree&);
void run(Stream&, const Trust&);
void run(Stream&, const Judge&);
void run(Stream&, const MatMul&);
void run(Stream&, const RmsNorm&);
void run(Stream&, const RmsNormGrad&);
void run(Stream&, const LayerNorm&);
void run(Stream&, const LayerNormGrad&);
void run(Stream&, const Rope&);
void run(Stream&, const Attention&);
void run(Stream&, const AttentionGrad&);
void run(Stream&, const AttentionDecode&);
void run(Stream&, const Gelu&);
void run(Stream&, const GeluGrad&);
void run(Stream&, const SwiGlu&);
void run(Stream&, const SwiGluGrad&);
void run(Stream&, const Embedding&);
void run(Stream&, const EmbeddingGrad&);
void run(Stream&, const LogitRecords&);
void run(Stream&, const CrossEntropy&);
void run(Stream&, const Copy&);
void run(Stream&, const Upload&);
void run(Stream&, const Add&);
void run(Stream&, const Scale&);
void run(Stream&, const Zero&);
void run(Stream&, const ColumnSum&);
void run(Stream&, const Dropout&);
void run(Stream&, const SquaredNorm&);
void run(Stream&, const AdamW&);
void run(Stream&, const SetAside&);

// Bytes of lane scratch, where a kernel needs any: a function of shapes.
size_t scratch_bytes(const MatMul&);
size_t scratch_bytes(const Attention&);
size_t scratch_bytes(const AttentionGrad&);
size_t scratch_bytes(const RmsNormGrad&);
size_t scratch_bytes(const LayerNormGrad&);
size_t scratch_bytes(const EmbeddingGrad&);
size_t scratch_bytes(const ColumnSum&);
size_t scratch_bytes(const SquaredNorm&);

}  // namespace trainer::cuda
