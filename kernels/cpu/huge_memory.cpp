#include "kernels/cpu/huge_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace trainer::cpu {
namespace {
constexpr size_t kHuge = size_t{2} << 20;
#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif
}  // namespace

HugeMemory::~HugeMemory() {
  if (mapping_) munmap(mapping_, mapped_);
}

std::span<std::byte> HugeMemory::reserve(size_t bytes) {
  check(!mapping_, Exit::memory, "[memory] the arena is reserved once");
  mapped_ = (bytes + 2 * kHuge - 1) / kHuge * kHuge;
  void* p = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(p != MAP_FAILED, Exit::memory, "[memory] mmap of {} bytes: {}; a smaller model, batch or recompute needs less", bytes,
        std::strerror(errno));
  mapping_ = p;
  auto* base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(p) + kHuge - 1) / kHuge * kHuge);
  madvise(base, bytes, MADV_HUGEPAGE);
  if (madvise(base, (bytes + 4095) / 4096 * 4096, MADV_POPULATE_WRITE) != 0) {
    check(errno == EINVAL, Exit::memory, "[memory] {} bytes for the arena: {}; the plan needs all of them resident", bytes,
          std::strerror(errno));
    for (size_t i = 0; i < bytes; i += 4096) base[i] = std::byte{0};
  }
  return {base, bytes};
}

}  // namespace trainer::cpu
