#include "tests/cuemu/sm90.h"

#include "tests/cuemu/block.h"

namespace cuemu {

void mbarrier_init(const void* barrier, unsigned arrivals, const Location& where) {
  block->mbarriers().init(barrier, arrivals, where);
}
void mbarrier_arrive(const void* barrier, unsigned expected_bytes, const Location& where) {
  block->mbarriers().arrive(barrier, expected_bytes, where);
}
void mbarrier_wait(const void* barrier, unsigned parity, const Location& where) {
  block->mbarriers().wait(barrier, parity, where);
}
void bulk_load(void* dst, const void* src, unsigned bytes, const void* barrier, const Location& where) {
  block->bulk_copies().issue_range(dst, src, bytes, barrier, where);
}
void tile_load(void* dst, const void* map, const void* barrier, const int* at, unsigned rank, const Location& where) {
  block->bulk_copies().issue_tile(dst, map, barrier, at, rank, where);
}

}  // namespace cuemu
