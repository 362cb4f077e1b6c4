// The CPU as a device: a lane is a worker thread with a ring of commands; an event is a count of commands done.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "core/device/device.h"

namespace trainer::cpu {

class LaneThread;
class Pool;

struct CpuOptions {
  int threads = 1;  // workers of the compute pool
  bool pin = true;
  uint64_t delay_seed = 0;                  // other than 0: lanes sleep at random before commands (tests)
  std::array<size_t, kLanes> ring_bytes{};  // command bytes of the longest plan, per lane; 0: a small ring
};
// Where a lane's scratch lies in the arena.
struct ScratchMap {
  std::array<size_t, kLanes> offset{}, bytes{};
};

class CpuDevice final : public Device {
 public:
  CpuDevice(std::span<std::byte> arena, const ScratchMap&, const CpuOptions&);
  ~CpuDevice() override;
  DeviceKind kind() const override { return DeviceKind::cpu; }
  Stream& lane(Lane) override;
  std::span<std::byte> arena() override { return arena_; }
  std::span<std::byte> page() override { return page_; }
  std::span<std::byte> more_page(size_t bytes) override { return more_.emplace_back(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override { std::copy(from.begin(), from.end(), to); }
  void download(std::span<std::byte> to, const std::byte* from) override { std::copy_n(from, to.size(), to.begin()); }
  // Rethrows what a command threw; the commands behind it were skipped.
  void wait(Event) override;
  void drain() override;
  std::optional<LaneTimes> times(Lane) override;

 private:
  friend class LaneThread;
  LaneThread& thread(Lane);
  std::span<std::byte> arena_;
  alignas(64) std::array<std::byte, kPageBytes> page_{};
  std::vector<std::vector<std::byte>> more_;
  ScratchMap scratch_;
  CpuOptions options_;
  std::unique_ptr<Pool> pool_;                             // of the compute lane
  std::array<std::unique_ptr<LaneThread>, kLanes> lanes_;  // started when first used
};

}  // namespace trainer::cpu
