// cp.async.bulk: one thread asks for a range or a tile; it comes to shared memory at some time, and is counted by an
// mbarrier.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/cuemu/fail.h"
#include "tests/cuemu/tensor_map.h"

namespace cuemu {

class BulkCopies {
 public:
  void clear() { pending_.clear(); }
  void issue_range(void* dst, const void* src, unsigned bytes, const void* barrier, const Location&);
  // `at`: the first element of the box, innermost coordinate first; what lies outside of the tensor is zero.
  void issue_tile(void* dst, const void* map, const void* barrier, const int* at, unsigned rank, const Location&);
  size_t pending() const { return pending_.size(); }
  void land(size_t which);

 private:
  struct Copy {
    char* dst;
    const void* barrier;
    unsigned bytes;
    const char* src;  // of a range; null for a tile
    TensorMap map;
    int at[TensorMap::kMaxRank];
  };
  void issue(const Copy&, const Location&);
  static void copy_tile(const Copy&);

  std::vector<Copy> pending_;
};

}  // namespace cuemu
