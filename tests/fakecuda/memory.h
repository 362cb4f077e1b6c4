// Where pointers point. Device memory is one region that the host cannot touch while no operation runs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>

namespace fake {

inline constexpr int kPoison = 0xff;  // of fresh and of freed memory: NaN in every floating type

enum class Where { pageable, pinned, managed, device };
Where where_is(const void* p, size_t n);  // without `mu`

bool is_pinned(const void* p, size_t n);  // with `mu` held

// While an operation runs; with `mu` held.
void open_device_memory();
void close_device_memory();

// The range of a map by address that holds [p, p + n).
template <class Range>
const Range* containing(const std::map<uintptr_t, Range>& ranges, const void* p, size_t n) {
  auto next = ranges.upper_bound(reinterpret_cast<uintptr_t>(p));
  if (next == ranges.begin()) return nullptr;
  const auto& [begin, range] = *--next;
  return reinterpret_cast<uintptr_t>(p) + n <= begin + range.bytes ? &range : nullptr;
}

}  // namespace fake
