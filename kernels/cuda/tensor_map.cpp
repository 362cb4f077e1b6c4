#include "kernels/cuda/tensor_map.h"

#include <cuda.h>

#include <cstring>

#include "kernels/cuda/cuda_error.h"

namespace trainer::cuda {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));

using Encode = decltype(&cuTensorMapEncodeTiled);

// By way of the runtime: the driver is not linked, so the binary starts without one.
Encode find_encode() {
  constexpr unsigned kSince = 12000;  // the version of CUDA that brought it
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince, cudaEnableDefault, &result),
             "asking the driver for tensor maps");
  check(result == cudaDriverEntryPointSuccess && function, Exit::device,
        "the driver has no tensor maps (cuTensorMapEncodeTiled of CUDA 12.0); update it");
  return reinterpret_cast<Encode>(function);
}

}  // namespace

TensorMap map_of_heads(const HeadRows& rows, int heads, const AttentionJob& job, int box_rows) {
  static const Encode encode = find_encode();
  constexpr cuuint32_t kRank = 4;
  constexpr cuuint64_t kBytes = 2;  // of an element
  const auto row_bytes = cuuint64_t(rows.stride) * kBytes;
  const cuuint64_t size[kRank] = {cuuint64_t(job.width), cuuint64_t(heads), cuuint64_t(job.length),
                                  cuuint64_t(job.batch)};
  const cuuint64_t strides[kRank - 1] = {cuuint64_t(job.width) * kBytes, row_bytes, row_bytes * cuuint64_t(job.length)};
  const cuuint32_t box[kRank] = {kBoxColumns, 1, cuuint32_t(box_rows), 1};
  const cuuint32_t steps[kRank] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kRank, rows.data, size, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(
      result == CUDA_SUCCESS, Exit::device,
      "attention: the driver refuses a tensor map of {} sequences of {} rows of {} elements, {} heads of {} (error {})",
      job.batch, job.length, rows.stride, heads, job.width, int(result));
  TensorMap out;
  std::memcpy(&out, &map, sizeof out);
  return out;
}

}  // namespace trainer::cuda
