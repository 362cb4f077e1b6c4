#include "tests/cuemu/bulk_copy.h"

#include <cstring>

#include "tests/cuemu/block.h"

namespace cuemu {
namespace {

bool aligned(const void* p, uintptr_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; }

}  // namespace

void BulkCopies::issue(const Copy& copy, const Location& where) {
  if (!block->shared().contains(copy.dst, copy.bytes))
    fail("space", where, "cp.async.bulk writes to %p, which is outside shared memory", static_cast<void*>(copy.dst));
  tsan_write(copy.dst, copy.bytes);
  tsan_release(block->mbarriers().token(copy.barrier, where));
  const Unwatched here;
  pending_.push_back(copy);
  if (block->copies_land_early()) land(pending_.size() - 1);
}

void BulkCopies::issue_range(void* dst, const void* src, unsigned bytes, const void* barrier, const Location& where) {
  if (!aligned(dst, 16) || !aligned(src, 16) || bytes % 16)
    fail("align", where, "cp.async.bulk: %p, %p or %u bytes are not aligned to 16", dst, src, bytes);
  tsan_read(src, bytes);
  issue({static_cast<char*>(dst), barrier, bytes, static_cast<const char*>(src), {}, {}}, where);
}

void BulkCopies::issue_tile(void* dst, const void* map, const void* barrier, const int* at, unsigned rank,
                            const Location& where) {
  Copy copy{static_cast<char*>(dst), barrier, 0, nullptr, {}, {}};
  std::memcpy(&copy.map, map, sizeof copy.map);
  if (copy.map.mark != TensorMap::kMark || copy.map.rank != rank)
    fail("tensor map", where, "%p is no map of a tensor with %u dimensions", map, rank);
  const unsigned dst_alignment = copy.map.swizzle_mask ? 1024 : 128;  // a swizzled tile begins a period of its pattern
  if (!aligned(dst, dst_alignment)) fail("align", where, "a tile's place %p is not aligned to %u", dst, dst_alignment);
  copy.bytes = copy.map.element_bytes;
  for (unsigned d = 0; d < rank; ++d) {
    copy.at[d] = at[d];
    copy.bytes *= copy.map.box[d];
  }
  ++block->stats().tiles;
  issue(copy, where);
}

void BulkCopies::copy_tile(const Copy& copy) {
  const TensorMap& m = copy.map;
  for (unsigned i = 0; i < copy.bytes / m.element_bytes; ++i) {
    const char* from = m.data;
    bool inside = true;
    unsigned rest = i;
    for (unsigned d = 0; d < m.rank; ++d) {
      const int64_t x = copy.at[d] + int64_t(rest % m.box[d]);
      rest /= m.box[d];
      inside &= x >= 0 && x < int64_t(m.size[d]);
      from += x * int64_t(m.stride[d]);
    }
    const auto to = reinterpret_cast<uintptr_t>(copy.dst) + uintptr_t(i) * m.element_bytes;
    char* place = reinterpret_cast<char*>(swizzle(to, m.swizzle_mask));
    if (inside) std::memcpy(place, from, m.element_bytes);
    else std::memset(place, 0, m.element_bytes);
  }
}

void BulkCopies::land(size_t which) {
  const Copy copy = pending_[which];
  pending_.erase(pending_.begin() + std::ptrdiff_t(which));
  if (copy.src) std::memcpy(copy.dst, copy.src, copy.bytes);
  else copy_tile(copy);
  block->mbarriers().complete_bytes(copy.barrier, copy.bytes);
}

}  // namespace cuemu
