// A rank of a test on the emulated GPUs and the NCCL shim: its device, memory that host and device reach, its lanes.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <memory>

#include "parallel/comm/nccl_backend.h"
#include "parallel/schedules/schedules.h"
#include "tests/plan/worlds.h"
#include "tests/ranks/comm_cases.h"

namespace trainer {

// A mesh of pp x dp x tp, and the stages of a small model on it.
struct GpuWorld {
  test::WorldShape shape;
  int tp = 1;
  RunSpec spec = spec_of(shape, tp);
  Model model = build_model(spec, mesh(0));
  Stages stages{spec, model, find_schedule(spec.parallel.pipeline), shape.microbatches};
  int size() const { return shape.pp * shape.dp * tp; }
  Mesh mesh(int rank) const { return Mesh::of(spec, size(), rank); }

 private:
  static RunSpec spec_of(const test::WorldShape& shape, int tp) {
    RunSpec s = test::spec_of(shape);
    s.parallel.tp = tp;
    return s;
  }
};
inline GpuWorld one_axis(int ranks) { return {.shape = {.dp = ranks}}; }

inline void cuda_expect(cudaError_t e) {
  if (e != cudaSuccess) throw std::logic_error(cudaGetErrorString(e));
}

class GpuStream final : public Stream {
 public:
  GpuStream() { cuda_expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~GpuStream() override { cudaStreamDestroy(stream_); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  DeviceKind kind() const override { return DeviceKind::cuda; }
  void* native() override { return stream_; }
  void submit(void (*run)(Stream&, const void*), const void* args, size_t) override { run(*this, args); }
  Event record() override { return {}; }
  void wait(Event) override {}
  std::span<std::byte> scratch() override { return {}; }

 private:
  cudaStream_t stream_ = nullptr;
};

class GpuRank {
 public:
  GpuRank(Exchange& exchange, const GpuWorld& world, size_t bytes = size_t{1} << 20)
      : exchange_(exchange), world_(world) {
    cuda_expect(cudaSetDevice(exchange.rank()));
    void* p = nullptr;
    cuda_expect(cudaMallocManaged(&p, bytes, cudaMemAttachGlobal));
    arena_ = {static_cast<std::byte*>(p), bytes};
    tensors_ = TensorPlaces(arena_);
    for (auto& lane : lanes_) lane = std::make_unique<GpuStream>();
  }
  ~GpuRank() {
    groups_.reset();
    for (auto& lane : lanes_) lane.reset();
    cudaFree(arena_.data());
  }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  int rank() const { return exchange_.rank(); }
  Mesh mesh() const { return world_.mesh(rank()); }
  Traffic& traffic() { return traffic_; }
  NcclOptions options() const { return {.arena = arena_, .zero = world_.shape.zero}; }
  GpuGroups& open() { return open(options()); }
  GpuGroups& open(const NcclOptions& options) {
    groups_ = open_nccl_groups(exchange_, mesh(), world_.stages, traffic_, options);
    return *groups_;
  }
  void close() { groups_.reset(); }
  Stream& lane(Lane l = Lane::compute) { return *lanes_[size_t(l)]; }
  void drain() {
    for (const auto& lane : lanes_) cuda_expect(cudaStreamSynchronize(static_cast<cudaStream_t>(lane->native())));
    if (groups_) groups_->check_alive();
  }
  Tensor take(DType dtype, int64_t elements, size_t misalign = 0) {
    return tensors_.take(rank(), dtype, elements, misalign);
  }
  void reset() { tensors_.reset(); }

 private:
  Exchange& exchange_;
  const GpuWorld& world_;
  std::span<std::byte> arena_;
  Traffic traffic_;
  std::array<std::unique_ptr<GpuStream>, kLanes> lanes_;
  std::unique_ptr<GpuGroups> groups_;
  TensorPlaces tensors_;
};

}  // namespace trainer
