// A GPU as a device: a lane is a stream; an event of a lane is one of a ring of CUDA events, recorded in its order.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "core/device/device.h"
#include "kernels/cuda/lane_clock.h"

namespace trainer::cuda {

struct CudaOptions {
  int device = 0;                       // of this process
  std::array<size_t, kLanes> events{};  // of each lane that may be waited for at once (core/engine/resolve.h)
};
// Where a lane's scratch lies in the arena.
struct ScratchMap {
  std::array<size_t, kLanes> offset{}, bytes{};
};

class CudaDevice;

class CudaStream final : public Stream {
 public:
  CudaStream(CudaDevice& device, Lane lane, std::span<std::byte> scratch, size_t events);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  DeviceKind kind() const override { return DeviceKind::cuda; }
  void* native() override { return stream_; }
  // Enqueues at once. Throws Error(device) where the launch is refused.
  void submit(void (*run)(Stream&, const void*), const void* args, size_t bytes) override;
  Event record() override;
  Event record_for_host() override;
  void wait(Event) override;
  void begin_account(int account) override;
  void end_account(int account) override;
  std::span<std::byte> scratch() override { return scratch_; }
  std::optional<LaneTimes> times() const;  // of the compute lane, as it was at the last event for the host

  void finish();  // the host waits for all of it
  // REQUIRES: at most `events` records were made since.
  cudaEvent_t event(uint64_t count) const { return ring_[count % ring_.size()]; }
  cudaEvent_t host_event(uint64_t count) const { return host_events_[count % host_events_.size()]; }

  // Whether it was given something since this was last asked, beside what a graph keeps.
  bool take_given() { return std::exchange(given_, false); }
  // All that it will be given comes behind what the compute lane has by then.
  void fall_behind() { behind_ = true; }

 private:
  void enter();

  CudaDevice& device_;
  const Lane lane_;
  const std::span<std::byte> scratch_;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> ring_;
  std::array<cudaEvent_t, 2> host_events_{};
  uint64_t recorded_for_host_ = 0;
  uint64_t recorded_ = 0;
  bool given_ = false, behind_ = false;
  std::unique_ptr<LaneClock> clock_;  // places: lanes that are waited for, then accounts
};

class CudaDevice final : public Device {
 public:
  // On an arena of the device's own memory.
  CudaDevice(std::span<std::byte> arena, const ScratchMap&, const CudaOptions&);
  ~CudaDevice() override;
  DeviceKind kind() const override { return DeviceKind::cuda; }
  Stream& lane(Lane) override;
  std::span<std::byte> arena() override { return arena_; }
  std::span<std::byte> page() override { return page_; }
  std::span<std::byte> more_page(size_t bytes) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  void wait(Event) override;
  void drain() override;
  std::optional<LaneTimes> times(Lane l) override { return stream(l).times(); }
  CudaStream& stream(Lane);

  void begin_graph(LaneMask) override;
  std::unique_ptr<Graph> end_graph() override;
  void launch(Graph&) override;
  bool keeps() const { return kept_ != 0; }                 // between begin_graph and end_graph
  void order(cudaStream_t first, cudaStream_t then) const;  // what `then` has from now on comes behind what `first` has

 private:
  cudaStream_t compute() { return static_cast<cudaStream_t>(stream(Lane::compute).native()); }

  const std::span<std::byte> arena_;
  const ScratchMap scratch_;
  const CudaOptions options_;
  std::vector<void*> pinned_;  // every page
  std::span<std::byte> page_;
  cudaEvent_t fence_ = nullptr;
  LaneMask kept_ = 0;                                      // lanes whose work is being kept
  std::array<std::unique_ptr<CudaStream>, kLanes> lanes_;  // opened when first used
};

}  // namespace trainer::cuda
