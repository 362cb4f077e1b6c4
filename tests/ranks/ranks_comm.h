// A rank of a test on shared memory: its arena, its device with lanes, its world.
#pragma once
#include <cstring>
#include <memory>

#include "core/base/error.h"
#include "kernels/cpu/cpu_device.h"
#include "parallel/comm/shm_comm.h"
#include "tests/support/ranks.h"

namespace trainer {

// A test's tensors in an arena.
class TensorPlaces {
 public:
  explicit TensorPlaces(std::span<std::byte> arena = {}) : arena_(arena) {}
  // A dense one, at a place that differs from rank to rank: arenas need not be laid out alike.
  Tensor take(int rank, DType dtype, int64_t elements, size_t misalign) {
    top_ = (top_ + 127) / 128 * 128 + 128 * size_t(rank % 3) + misalign * size_of(dtype);
    const Tensor t = make_tensor(arena_.data() + top_, dtype, {elements});
    top_ += t.bytes();
    check(top_ <= arena_.size(), Exit::memory, "the test's arena is too small");
    std::memset(t.data, 0x5a, t.bytes());
    return t;
  }
  void reset() { top_ = 0; }

 private:
  std::span<std::byte> arena_;
  size_t top_ = 0;
};

class TestRank {
 public:
  explicit TestRank(Exchange& exchange, uint64_t delay_seed = 0, size_t bytes = size_t{1} << 20)
      : TestRank(exchange, all(exchange.size()), delay_seed, bytes) {}
  TestRank(Exchange& exchange, const std::vector<int>& ranks_of_host, uint64_t delay_seed, size_t bytes)
      : arena_(memory_.reserve(bytes)), world_(exchange, memory_, ranks_of_host) {
    cpu::CpuOptions options{.threads = 1, .pin = false};
    if (delay_seed) options.delay_seed = delay_seed + uint64_t(exchange.rank());
    device_ = std::make_unique<cpu::CpuDevice>(arena_, cpu::ScratchMap{}, options);
  }
  int rank() const { return world_.rank(); }
  ShmWorld& world() { return world_; }
  Stream& lane(Lane l = Lane::compute) { return device_->lane(l); }
  void drain() { device_->drain(); }
  Tensor take(DType dtype, int64_t elements, size_t misalign = 0) {
    return tensors_.take(rank(), dtype, elements, misalign);
  }
  void reset() { tensors_.reset(); }
  static std::vector<int> all(int n) {
    std::vector<int> ranks;
    for (int r = 0; r < n; ++r) ranks.push_back(r);
    return ranks;
  }
  // Of all ranks, on a lane.
  std::unique_ptr<ShmComm> comm(int size, Lane lane = Lane::compute, const std::string& key = "world") {
    const int slot = shm::axis_slot(Axis::world, lane);
    return std::make_unique<ShmComm>(world_, GroupName{key, rank(), all(size)},
                                     ShmPlace{std::string(name_of(lane)), slot, slot, 100},
                                     traffic_.entry(Axis::world, lane));
  }

  Traffic& traffic() { return traffic_; }

 private:
  SharedMemory memory_;
  std::span<std::byte> arena_;
  ShmWorld world_;
  Traffic traffic_;
  std::unique_ptr<cpu::CpuDevice> device_;
  TensorPlaces tensors_{arena_};
};

inline void expect(bool holds, const std::string& what) {  // Catch2's assertions belong to its own thread
  if (!holds) throw std::logic_error(what);
}
inline void expect_contains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    expect(text.find(part) != std::string::npos, fmt::format("'{}' lacks '{}'", text, part));
}

}  // namespace trainer
