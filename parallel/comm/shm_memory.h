// A rank's arena where its neighbours can reach it: one memfd, a control block first, then the arena. It has no name in
// any file system, so nothing is left behind, however the process ends.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>

#include "core/device/device.h"
#include "parallel/comm/shm_control.h"

namespace trainer {

// A mapping of a rank's memfd: its own, or a peer's.
class Segment {
 public:
  // Creates. Resident and zeroed, on huge pages where the kernel gives them. Throws Error(memory), before anything is
  // touched, where the system has not that much.
  explicit Segment(size_t arena_bytes);
  // Maps what `introduction()` of another rank says. Throws Error(rank).
  static std::shared_ptr<Segment> of_peer(int rank, const std::string& introduction);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  shm::Control& control() const { return *reinterpret_cast<shm::Control*>(base_); }
  std::span<std::byte> arena() const { return {base_ + shm::kControlBytes, arena_bytes_}; }
  int fd() const { return fd_; }

 private:
  Segment(int fd, size_t arena_bytes);  // takes the descriptor, maps nothing
  void map();
  void make_resident(bool create);
  int fd_;
  size_t arena_bytes_;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  std::byte* base_ = nullptr;
};

class SharedMemory final : public Memory {
 public:
  // 2 MiB aligned; as kernels/cpu/huge_memory.h.
  std::span<std::byte> reserve(size_t bytes) override;
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  // For Segment::of_peer. This object must live until the peer has read it.
  std::string introduction() const;

 private:
  std::shared_ptr<Segment> segment_;
};

}  // namespace trainer
