// cp.async: copies to shared memory that land some time between their issue and the wait for their group.
#pragma once
#include <cstddef>
#include <vector>

#include "tests/cuemu/fail.h"

namespace cuemu {

// Of one thread. `src_bytes` are copied, the rest up to `bytes` becomes zero.
class AsyncCopies {
 public:
  void clear();
  void issue(void* dst, const void* src, unsigned bytes, unsigned src_bytes);
  void commit() { ++group_; }
  void wait(unsigned groups_in_flight);
  size_t pending() const { return copies_.size(); }

 private:
  struct Copy {
    void* dst;
    const void* src;
    unsigned bytes, src_bytes;
    int group;
  };
  static void land(const Copy&);

  std::vector<Copy> copies_;
  int group_ = 0;
};

void cp_async(void* dst, const void* src, unsigned bytes, unsigned src_bytes, const Location&);
void cp_async_commit();
void cp_async_wait(unsigned groups_in_flight);

}  // namespace cuemu
