#include "tests/cuemu/warp.h"

#include <bit>

#include "tests/cuemu/block.h"

namespace cuemu {
namespace {

bool has(unsigned mask, unsigned lane) { return mask >> lane & 1; }

template <class F>
void for_each_lane(unsigned mask, F f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

Collective& join(Warp& warp, Op op, unsigned mask, const Location& where) {
  for (Collective& c : warp.collectives) {
    if (!c.arrived || c.mask != mask) continue;
    if (c.op != op || c.where.line() != where.line() || c.where.column() != where.column())
      fail("warp", where, "lanes of one warp are in different collectives (other lanes at line %u)",
           unsigned(c.where.line()));
    return c;
  }
  for (Collective& c : warp.collectives) {
    if (c.arrived) continue;
    c.mask = mask;
    c.op = op;
    c.where = where;
    return c;
  }
  fail("warp", where, "more than %d masks at once in one warp", Warp::kMasks);
}

}  // namespace

void warp_collective(Op op, unsigned mask, const void* in, void* out, Complete complete, const Location& where) {
  Thread& t = *current;
  Warp& warp = *t.warp;
  // Only __syncwarp orders memory: "These intrinsics do not imply a memory barrier" (CUDA C++ Programming Guide, warp
  // shuffle and vote functions).
  if (op == Op::syncwarp) tsan_release(block->token_of(warp));
  {
    const Unwatched here;
    if (!has(mask, t.lane)) fail("warp", where, "the calling lane %u is not in the mask %08x", t.lane, mask);
    if (mask & ~warp.alive)
      fail("warp", where, "the mask %08x names lanes that exited or do not exist (alive: %08x)", mask, warp.alive);
    Collective& c = join(warp, op, mask, where);
    c.in[t.lane] = in;
    c.out[t.lane] = out;
    c.arrived |= 1u << t.lane;
    t.where = where;
    t.waiting_in = "a collective of its warp";
    if (c.arrived == mask) {
      complete(c);
      c.arrived = 0;
      ++block->stats().collectives;
      for_each_lane(mask, [&](int lane) { block->wake(*warp.lanes[lane]); });
    }
    block->suspend();
    t.waiting_in = nullptr;
  }
  if (op == Op::syncwarp) tsan_acquire(block->token_of(warp));
}

void check_exit(const Warp& warp, unsigned lane) {
  for (const Collective& c : warp.collectives)
    if (c.arrived && has(c.mask, lane) && !has(c.arrived, lane))
      fail("warp", c.where, "lane %u exited although other lanes wait for it in a collective with mask %08x", lane,
           c.mask);
}

uint64_t shuffle_bits(unsigned mask, const ShuffleInput& in, const Location& where) {
  uint64_t out = 0;
  const auto complete = [](Collective& c) {
    for_each_lane(c.mask, [&](int lane) {
      const auto& i = *static_cast<const ShuffleInput*>(c.in[lane]);
      const int begin = lane / i.width * i.width, end = begin + i.width;
      int from = lane;
      switch (i.kind) {
        case Shuffle::index: from = begin + (i.lane % i.width + i.width) % i.width; break;
        case Shuffle::up: from = lane - i.lane < begin ? lane : lane - i.lane; break;
        case Shuffle::down: from = lane + i.lane >= end ? lane : lane + i.lane; break;
        case Shuffle::exclusive_or: from = (lane ^ i.lane) >= end ? lane : lane ^ i.lane; break;
      }
      if (!has(c.mask, unsigned(from)))
        fail("warp", c.where, "lane %d shuffles from lane %d, which is not in the mask %08x", lane, from, c.mask);
      *static_cast<uint64_t*>(c.out[lane]) = static_cast<const ShuffleInput*>(c.in[from])->bits;
    });
  };
  warp_collective(Op::shfl, mask, &in, &out, complete, where);
  return out;
}

unsigned ballot(unsigned mask, int predicate, const Location& where) {
  unsigned out = 0;
  const auto complete = [](Collective& c) {
    unsigned votes = 0;
    for_each_lane(c.mask, [&](int lane) { votes |= unsigned(*static_cast<const int*>(c.in[lane]) != 0) << lane; });
    for_each_lane(c.mask, [&](int lane) { *static_cast<unsigned*>(c.out[lane]) = votes; });
  };
  warp_collective(Op::ballot, mask, &predicate, &out, complete, where);
  return out;
}

unsigned active_mask() { return current->warp->alive; }

}  // namespace cuemu
