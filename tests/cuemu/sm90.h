// The emulated instructions of sm_90, of the calling thread.
#pragma once
#include "tests/cuemu/wgmma.h"

namespace cuemu {

void mbarrier_init(const void* barrier, unsigned arrivals, const Location&);
void mbarrier_arrive(const void* barrier, unsigned expected_bytes, const Location&);
void mbarrier_wait(const void* barrier, unsigned parity, const Location&);
void bulk_load(void* dst, const void* src, unsigned bytes, const void* barrier, const Location&);
void tile_load(void* dst, const void* map, const void* barrier, const int* at, unsigned rank, const Location&);

}  // namespace cuemu
