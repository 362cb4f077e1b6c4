// A file engine with its buffers: blocks of 4 MiB, aligned for O_DIRECT, touched once at the start.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "io/file_engine.h"

namespace trainer {

inline constexpr size_t kBlockBytes = size_t(4) << 20;  // of a shard: the unit of transfers and of checksums
inline constexpr size_t kBlockAlign = 4096;

class Staging {
 public:
  explicit Staging(int blocks);
  FileEngine& engine() { return *engine_; }
  int blocks() const { return engine_->depth(); }
  std::span<std::byte> block(int i) { return {bytes_.get() + size_t(i) * kBlockBytes, kBlockBytes}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::unique_ptr<FileEngine> engine_;  // after the buffers it writes into: gone before them
};

}  // namespace trainer
