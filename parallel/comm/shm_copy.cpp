#include "parallel/comm/shm_copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "parallel/comm/shm_copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace trainer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `to` is aligned to 64 bytes; `bytes` is a multiple of 128.
void stream_bytes(uint8_t* to, const uint8_t* from, size_t bytes) {
  const hn::CappedTag<uint8_t, 64> d;
  const size_t width = hn::Lanes(d);
  for (size_t i = 0; i < bytes; i += 2 * width) {
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + i + width);
    hn::Stream(a, d, to + i);
    hn::Stream(b, d, to + i + width);
  }
  hwy::FlushStream();  // before the phase that says it is done
}

}  // namespace trainer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer {
namespace {

HWY_EXPORT(stream_bytes);

constexpr size_t kStreamed = size_t{8} << 20;

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to == from || bytes == 0) return;
  size_t head = 0, body = 0;
  if (bytes >= kStreamed) {
    head = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
    body = (bytes - head) / 128 * 128;
    HWY_DYNAMIC_DISPATCH(stream_bytes)
    (reinterpret_cast<uint8_t*>(to + head), reinterpret_cast<const uint8_t*>(from + head), body);
  }
  std::memcpy(to, from, head);
  std::memcpy(to + head + body, from + head + body, bytes - head - body);
}

}  // namespace trainer
#endif  // HWY_ONCE
