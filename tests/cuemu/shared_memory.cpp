#include "tests/cuemu/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/cuemu/config.h"
#include "tests/cuemu/fail.h"
#include "tests/cuemu/sanitizers.h"

namespace cuemu {
namespace {

constexpr size_t kArena = 512u << 10;
constexpr size_t kRedZone = 128;
constexpr size_t kStaticLimit = 48u << 10;  // of __shared__ arrays; ptxas refuses more
constexpr int kPoison = 0xff;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

SharedMemory::~SharedMemory() {
  if (!arena_) return;
  asan_unpoison(arena_, kArena);
  munmap(arena_, kArena);
}

void SharedMemory::start_block(size_t dynamic_bytes) {
  if (kThreadSanitizer && arena_) {  // fresh pages: the sanitizer forgets what the last block did there
    munmap(arena_, kArena);
    arena_ = nullptr;
  }
  if (!arena_) {
    void* p = mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    arena_ = static_cast<char*>(p);
  }
  asan_unpoison(arena_, kArena);
  std::memset(arena_, kPoison, std::min(kArena, std::max(used_, kRedZone + dynamic_bytes + kRedZone)));
  asan_poison(arena_, kArena);
  arrays_.clear();
  dynamic_ = arena_ + kRedZone;
  dynamic_bytes_ = dynamic_bytes;
  static_bytes_ = 0;
  used_ = round_up(kRedZone + dynamic_bytes + kRedZone, kRedZone);
  asan_unpoison(dynamic_, dynamic_bytes);
}

void* SharedMemory::array(const void* tag, size_t bytes, size_t align) {
  for (const Array& a : arrays_)
    if (a.tag == tag) return a.data;
  static_bytes_ = round_up(static_bytes_, align) + bytes;
  if (static_bytes_ > kStaticLimit)
    fail("smem", {}, "%zu bytes of static shared memory, %zu is the limit", static_bytes_, kStaticLimit);
  if (static_bytes_ + dynamic_bytes_ > config().shared_bytes)
    fail("smem", {}, "%zu bytes of static and %zu of dynamic shared memory: a block has %zu", static_bytes_,
         dynamic_bytes_, config().shared_bytes);
  const size_t offset = round_up(used_ + kRedZone, align);
  if (offset + bytes + kRedZone > kArena) fail("smem", {}, "the emulator has no room for %zu bytes more", bytes);
  char* data = arena_ + offset;
  asan_unpoison(data, bytes);
  if (kAddressSanitizer) std::memset(data, kPoison, bytes);
  else std::memset(data - kRedZone, kPoison, bytes + 2 * kRedZone);
  used_ = offset + bytes + kRedZone;
  arrays_.push_back({tag, data, bytes});
  return data;
}

void SharedMemory::check_red_zones() const {
  if (kAddressSanitizer) return;
  check_red_zones(dynamic_, dynamic_bytes_, "the dynamic shared memory");
  for (const Array& a : arrays_) check_red_zones(a.data, a.bytes, "a static shared array");
}

void SharedMemory::check_red_zones(const char* data, size_t bytes, const char* what) const {
  for (size_t i = 0; i < kRedZone; ++i) {
    if (uint8_t(data[bytes + i]) != kPoison)
      fail("smem", {}, "%zu bytes past the end of %s (%zu bytes) were written", i, what, bytes);
    if (uint8_t(data[-1 - std::ptrdiff_t(i)]) != kPoison)
      fail("smem", {}, "%zu bytes in front of %s (%zu bytes) were written", i + 1, what, bytes);
  }
}

bool SharedMemory::contains(const void* p, size_t n) const {
  const char* c = static_cast<const char*>(p);
  return c >= arena_ && c + n <= arena_ + kArena;
}

}  // namespace cuemu
