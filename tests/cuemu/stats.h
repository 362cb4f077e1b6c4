// What ran since the process began. Tests count with it: launches, instructions, bank conflicts.
#pragma once
#include <cstdint>

namespace cuemu {

struct Stats {
  uint64_t launches = 0, blocks = 0, threads = 0, switches = 0, barriers = 0, collectives = 0;
  uint64_t mma = 0, cp_async = 0;  // instructions of a warp; of a thread
  uint64_t wgmma = 0;              // warps' parts of them: four of each
  uint64_t tiles = 0;              // that bulk copies were asked for
  uint64_t ldm = 0;                // 8x8 matrices that ldmatrix loaded
  uint64_t ldm_conflict_ways = 0;  // rows of them that waited for a bank of shared memory
  uint64_t stm = 0;                // the same of stmatrix
  uint64_t stm_conflict_ways = 0;

  Stats& operator+=(const Stats& more) {
    launches += more.launches;
    blocks += more.blocks;
    threads += more.threads;
    switches += more.switches;
    barriers += more.barriers;
    collectives += more.collectives;
    mma += more.mma;
    wgmma += more.wgmma;
    tiles += more.tiles;
    cp_async += more.cp_async;
    ldm += more.ldm;
    ldm_conflict_ways += more.ldm_conflict_ways;
    stm += more.stm;
    stm_conflict_ways += more.stm_conflict_ways;
    return *this;
  }
};
Stats& stats();

}  // namespace cuemu
