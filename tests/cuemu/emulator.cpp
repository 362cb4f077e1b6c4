// emu.cpp - fiber scheduler, warp collectives, shared memory arena, mma/ldmatrix/cp.async emulation.
#include "tests/cuemu/emulator.h"
#include "tests/cuemu/quiet_lock.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMU_ASAN 1
#endif
#if defined(EMU_TSAN)  // this file is built WITHOUT -fsanitize=thread (its own state is not checked); kernels are built with it
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#define TSAN_OFF() (AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__))
#define TSAN_ON() (AnnotateIgnoreReadsEnd(__FILE__, __LINE__), AnnotateIgnoreWritesEnd(__FILE__, __LINE__))
#define TSAN_R(p, n) __tsan_read_range(const_cast<void*>(static_cast<const void*>(p)), n)
#define TSAN_W(p, n) __tsan_write_range(p, n)
#else
#define TSAN_OFF() ((void)0)
#define TSAN_ON() ((void)0)
#define TSAN_R(p, n) ((void)0)
#define TSAN_W(p, n) ((void)0)
#endif

extern "C" void cuemu_switch(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl cuemu_switch
.type cuemu_switch,@function
cuemu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size cuemu_switch,.-cuemu_switch
)");
#else
#error "add a context switch for this CPU"
#endif

namespace cuemu {
thread_local Thread* cur = nullptr;

namespace {
constexpr size_t kStack = 64 << 10;
constexpr size_t kArena = 512 << 10, kRed = 128;
#ifdef EMU_ASAN
constexpr bool kCanary = false;
#else
constexpr bool kCanary = true;
#endif
enum class Order { random, forward, reverse };
struct Config {
  uint64_t seed = 1;
  Order order = Order::random;
  int workers = 2;
  size_t smem_cap = 227 << 10;
  Config() {
    if (auto* s = getenv("CUEMU_SEED")) seed = strtoull(s, nullptr, 10);
    if (auto* s = getenv("CUEMU_ORDER")) order = *s == 'f' ? Order::forward : *s == 'r' && s[1] == 'e' ? Order::reverse : Order::random;
    if (auto* s = getenv("CUEMU_WORKERS")) workers = atoi(s);
    if (auto* s = getenv("CUEMU_SMEM_KB")) smem_cap = size_t(atoi(s)) << 10;
  }
};
Config& cfg() { static Config c; return c; }
Stats g_stats;
QuietLock g_stats_mu;

struct CpAsync { void* dst; const void* src; unsigned bytes, src_bytes; int group; };
struct Slot { const void* tag; char* p; size_t n; };

struct Sched {  // one per OS worker thread
  std::vector<Thread> th;
  std::vector<Warp> warps;
  std::vector<uint32_t> ready;
  std::vector<std::vector<CpAsync>> cp;
  std::vector<int> cp_group;
  std::vector<Slot> slots;
  unsigned n = 0, alive = 0, bar_count = 0;
  std::vector<uint32_t> bar_waiters;
  loc_t bar_loc;
  char* arena = nullptr;
  size_t arena_used = 0;
  char* dyn = nullptr;
  size_t dyn_bytes = 0;
  void* main_sp = nullptr;
  void* main_tsan = nullptr;
  void* main_asan = nullptr;
  const void* main_bottom = nullptr;
  size_t main_size = 0;
  uint64_t rng = 0, block_no = 0;
  bool pct = false;
  std::vector<uint32_t> prio, warp_prio;  // PCT: strict random priorities per warp, demoted at random points
  std::vector<std::pair<uint64_t, uint32_t>> heap;
  bool cp_early = false;
  const std::function<void()>* body = nullptr;
  const char* name = "";
  Stats st;
  char bar_token[2], exit_token, start_token;

  void make_ready(uint32_t i) {
    if (!pct) { ready.push_back(i); return; }
    uint64_t p = uint64_t(warp_prio[th[i].linear >> 5]) << 32 | rnd();
    heap.emplace_back(p, i);
    std::push_heap(heap.begin(), heap.end());
  }
  uint32_t rnd() {
    rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17;
    return uint32_t(rng >> 16);
  }
  ~Sched() {
    for (auto& t : th) if (t.stack) munmap(t.stack, kStack);
#ifdef EMU_TSAN
    for (auto& t : th) if (t.tsan) __tsan_destroy_fiber(t.tsan);
#endif
    if (arena) {
#ifdef EMU_ASAN
      ASAN_UNPOISON_MEMORY_REGION(arena, kArena);
#endif
      munmap(arena, kArena);
    }
  }
};
thread_local Sched* S = nullptr;
struct Pool {  // schedulers and their stacks are reused across launches
  std::vector<Sched*> v;
  ~Pool() { for (auto* s : v) delete s; }
} g_pool;

void to_main(bool dying = false) {
  Thread* t = cur;
  S->st.switches++;
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(dying ? nullptr : &t->asan_fake, S->main_bottom, S->main_size);
#endif
#ifdef EMU_TSAN
  __tsan_switch_to_fiber(S->main_tsan, __tsan_switch_to_fiber_no_sync);
#endif
  (void)dying;
  cuemu_switch(&t->sp, S->main_sp);
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(t->asan_fake, &S->main_bottom, &S->main_size);
#endif
}

void release_barrier() {
  S->bar_count = 0;
  for (auto i : S->bar_waiters) S->make_ready(i);
  S->bar_waiters.clear();
  S->st.barriers++;
}

extern "C" void cuemu_entry() {
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &S->main_bottom, &S->main_size);
#endif
#ifdef EMU_TSAN
  __tsan_acquire(&S->start_token);
#endif
  (*S->body)();
  Thread* t = cur;
  TSAN_OFF();
  if (!S->cp[t->slot].empty()) fail("cp.async", t->where, "thread %u exits with %zu cp.async copies not waited for", t->linear, S->cp[t->slot].size());
  t->done = true;
  t->warp->alive &= ~(1u << t->lane);
  for (auto& c : t->warp->coll)
    if (c.arrived && (c.mask >> t->lane & 1) && !(c.arrived >> t->lane & 1))
      fail("warp", c.where, "lane %u exited although lanes wait for it in a collective with mask %08x", t->lane, c.mask);
  S->alive--;
  if (S->bar_count && S->bar_count == S->alive) release_barrier();
  TSAN_ON();
#ifdef EMU_TSAN
  __tsan_release(&S->exit_token);
#endif
  to_main(true);
  abort();
}

void init_stack(Thread& t) {
  if (!t.stack) {
    t.stack = static_cast<char*>(mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mprotect(t.stack, 4096, PROT_NONE);
  }
  auto* top = reinterpret_cast<void**>(t.stack + kStack);
  *--top = nullptr;                                    // fake return address of entry: keeps 16-byte alignment
  *--top = reinterpret_cast<void*>(&cuemu_entry);      // ret target
  for (int i = 0; i < 6; i++) *--top = nullptr;
  t.sp = top;
}

void run_block(size_t smem) {
  auto& s = *S;
  s.n = blockDim.x * blockDim.y * blockDim.z;
  if (s.th.size() < s.n) { s.th.resize(s.n); s.cp.resize(s.n); s.cp_group.resize(s.n); }
  unsigned nw = (s.n + 31) / 32;
  s.warps.assign(nw, Warp{});
#ifdef EMU_TSAN
  if (s.arena) { munmap(s.arena, kArena); s.arena = nullptr; }  // makes TSan forget the previous block's accesses
#endif
  if (!s.arena) s.arena = static_cast<char*>(mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
#ifdef EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(s.arena, kArena);
#endif
  memset(s.arena, 0xFF, std::min(kArena, std::max<size_t>(s.arena_used, kRed + smem + kRed)));  // NaN poison in every block
#ifdef EMU_ASAN
  ASAN_POISON_MEMORY_REGION(s.arena, kArena);
#endif
  s.slots.clear();
  s.dyn = s.arena + kRed;
  s.dyn_bytes = smem;
  s.arena_used = (kRed + smem + 2 * kRed - 1) / kRed * kRed;
#ifdef EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(s.dyn, smem);
#endif
  s.ready.clear();
  s.heap.clear();
  s.bar_waiters.clear();
  s.bar_count = 0;
  s.alive = s.n;
  unsigned bx = blockDim.x, by = blockDim.y, rot = 0;
#ifdef EMU_TSAN
  rot = unsigned(s.block_no * 37 % s.n);
#endif
  s.block_no++;
  s.pct = cfg().order == Order::random && (s.rnd() & 1);
  if (s.pct) { s.prio.resize(s.n); for (auto& p : s.prio) p = 0; s.warp_prio.resize(nw); for (auto& p : s.warp_prio) p = s.rnd() | 1u << 31; }
  for (unsigned i = 0; i < s.n; i++) {
    auto& t = s.th[i];
    unsigned k = (i + rot) % s.n;  // logical thread of this fiber; rotated so that equal threads of different blocks are different TSan fibers
    t.slot = i; t.linear = k; t.lane = k & 31; t.warp = &s.warps[k >> 5];
    t.tid = {k % bx, k / bx % by, k / (bx * by)};
    t.done = t.started = false; t.waiting = nullptr; t.barrier_parity = 0; t.asan_fake = nullptr;
    t.warp->index = k >> 5; t.warp->alive |= 1u << t.lane; t.warp->lanes[t.lane] = &t;
    s.cp[i].clear(); s.cp_group[i] = 0;
#ifdef EMU_ASAN
    if (t.stack) ASAN_UNPOISON_MEMORY_REGION(t.stack + 4096, kStack - 4096);  // frames of the previous block never unwound
#endif
    init_stack(t);
#ifdef EMU_TSAN
    if (!t.tsan) t.tsan = __tsan_create_fiber(0);
#endif
    s.make_ready(i);
  }
#ifdef EMU_TSAN
  s.main_tsan = __tsan_get_current_fiber();
  __tsan_release(&s.start_token);  // launch happens-before every thread; main acquires only at grid end: no edges between blocks
#endif
  s.cp_early = cfg().order == Order::random && (s.rnd() & 1);
  if (cfg().order == Order::reverse && !s.pct) for (size_t i = 0, j = s.ready.size() - 1; i < j; i++, j--) std::swap(s.ready[i], s.ready[j]);
  size_t head = 0;
  unsigned finished = 0;
  while (finished < s.n) {
    uint32_t i;
    if (s.pct) {
      if (s.heap.empty()) goto dead;
      std::pop_heap(s.heap.begin(), s.heap.end());
      i = s.heap.back().second; s.heap.pop_back();
      if ((s.rnd() & 1023) == 0) s.warp_prio[s.th[i].linear >> 5] = s.rnd() >> 2;  // demote this warp
    } else if (cfg().order == Order::random) {
      if (s.ready.empty()) goto dead;
      size_t k = s.rnd() % s.ready.size();
      i = s.ready[k]; s.ready[k] = s.ready.back(); s.ready.pop_back();
    } else {
      if (head == s.ready.size()) goto dead;
      i = s.ready[head++];
      if (head > 4096 && head * 2 > s.ready.size()) { s.ready.erase(s.ready.begin(), s.ready.begin() + head); head = 0; }
    }
    {
      Thread& t = s.th[i];
      cur = &t;
      threadIdx = t.tid;
      s.st.switches++;
#ifdef EMU_ASAN
      __sanitizer_start_switch_fiber(&s.main_asan, t.stack, kStack);
#endif
#ifdef EMU_TSAN
      __tsan_switch_to_fiber(t.tsan, __tsan_switch_to_fiber_no_sync);
#endif
      cuemu_switch(&s.main_sp, t.sp);
#ifdef EMU_ASAN
      __sanitizer_finish_switch_fiber(s.main_asan, nullptr, nullptr);
#endif
      if (t.done) finished++;
    }
    continue;
  dead:
    for (unsigned k = 0; k < s.n; k++)
      if (!s.th[k].done) { cur = &s.th[k]; fail("deadlock", cur->where, "no thread can run; first blocked: thread %u in %s", k, cur->waiting ? cur->waiting : "?"); }
  }
  for (size_t i = 0; i < kRed; i++)
    if (kCanary && uint8_t(s.dyn[s.dyn_bytes + i]) != 0xFF) fail("smem", loc_t(), "write %zu bytes past the end of dynamic shared memory (%zu bytes)", i, s.dyn_bytes);
  for (auto& sl : s.slots)
    for (size_t i = 0; i < kRed; i++)
      if (kCanary && (uint8_t(sl.p[sl.n + i]) != 0xFF || uint8_t(sl.p[-1 - long(i)]) != 0xFF)) fail("smem", loc_t(), "write outside a static shared array of %zu bytes", sl.n);
  s.st.blocks++;
  s.st.threads += s.n;
}
}  // namespace

void fail(const char* kind, const loc_t& w, const char* fmt, ...) {
  char msg[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  fprintf(stderr, "CUEMU ERROR [%s] kernel %s block (%u,%u,%u) thread %u at %s:%u: %s (seed %llu)\n", kind, S ? S->name : "?", blockIdx.x, blockIdx.y,
          blockIdx.z, cur ? cur->linear : 0, w.file_name(), w.line(), msg, (unsigned long long)cfg().seed);
  fflush(stderr);
  _exit(66);
}

void yield() {
  if (!S) return;
  TSAN_OFF();
  S->make_ready(cur->slot);
  to_main();
  TSAN_ON();
}

void block_barrier(const loc_t& w) {
  Thread* t = cur;
#ifdef EMU_TSAN
  unsigned par = t->barrier_parity;
  t->barrier_parity ^= 1;
  __tsan_release(&S->bar_token[par]);
#endif
  TSAN_OFF();
  if (S->bar_count == 0) S->bar_loc = w;
  else if (S->bar_loc.line() != w.line() || S->bar_loc.column() != w.column() || strcmp(S->bar_loc.file_name(), w.file_name()))
    fail("barrier", w, "divergent __syncthreads: other threads of the block wait at line %u", S->bar_loc.line());
  t->where = w; t->waiting = "__syncthreads";
  S->bar_count++;
  S->bar_waiters.push_back(t->slot);
  if (S->bar_count == S->alive) release_barrier();
  to_main();
  t->waiting = nullptr;
  TSAN_ON();
#ifdef EMU_TSAN
  __tsan_acquire(&S->bar_token[par]);
#endif
}

void warp_collective(Op op, unsigned mask, const void* in, void* out, complete_fn fn, const loc_t& w) {
  Thread* t = cur;
#ifdef EMU_TSAN
  // only __syncwarp orders memory; shuffles, votes, mma and ldmatrix do not (CUDA programming guide)
  char* token = &t->warp->tsan_token[0];
  if (op == Op::syncwarp) __tsan_release(token);
#endif
  TSAN_OFF();
  Warp& wp = *t->warp;
  if (!(mask >> t->lane & 1)) fail("warp", w, "calling lane %u is not in mask %08x", t->lane, mask);
  if (mask & ~wp.alive) fail("warp", w, "mask %08x names lanes that exited or do not exist (alive %08x)", mask, wp.alive);
  Coll* c = nullptr;
  for (auto& k : wp.coll) if (k.arrived && k.mask == mask) { c = &k; break; }
  if (!c) for (auto& k : wp.coll) if (!k.arrived) { c = &k; c->mask = mask; c->op = op; c->where = w; break; }
  if (!c) fail("warp", w, "more than 8 different masks at once in one warp");
  if (c->op != op || c->where.line() != w.line() || c->where.column() != w.column()) fail("warp", w, "lanes of one warp are in different collectives (other lanes at line %u)", c->where.line());
  c->in[t->lane] = in; c->out[t->lane] = out;
  c->arrived |= 1u << t->lane;
  t->where = w; t->waiting = "warp collective";
  if (c->arrived == mask) {
    fn(*c);
    c->arrived = 0;
    S->st.collectives++;
    for (unsigned m = mask; m; m &= m - 1) S->make_ready(wp.lanes[__builtin_ctz(m)]->slot);
  }
  to_main();
  t->waiting = nullptr;
  TSAN_ON();
#ifdef EMU_TSAN
  if (op == Op::syncwarp) __tsan_acquire(token);
#endif
}

uint64_t shfl_bits(unsigned mask, const ShflIn& in, const loc_t& w) {
  uint64_t out = 0;
  warp_collective(Op::shfl, mask, &in, &out, [](Coll& c) {
    for (unsigned m = c.mask; m; m &= m - 1) {
      int l = __builtin_ctz(m);
      auto& i = *static_cast<const ShflIn*>(c.in[l]);
      int wd = int(i.width), base = l / wd * wd, s;
      switch (i.kind) {
        case 0: s = base + ((i.src % wd) + wd) % wd; break;
        case 1: s = l - i.src < base ? l : l - i.src; break;
        case 2: s = l + i.src >= base + wd ? l : l + i.src; break;
        default: s = (l ^ i.src) >= base + wd ? l : (l ^ i.src);
      }
      if (!(c.mask >> s & 1)) fail("warp", c.where, "lane %d shuffles from lane %d, which is not in mask %08x", l, s, c.mask);
      *static_cast<uint64_t*>(c.out[l]) = static_cast<const ShflIn*>(c.in[s])->bits;
    }
  }, w);
  return out;
}

unsigned ballot(unsigned mask, int pred, const loc_t& w) {
  unsigned out = 0;
  warp_collective(Op::ballot, mask, &pred, &out, [](Coll& c) {
    unsigned r = 0;
    for (unsigned m = c.mask; m; m &= m - 1) { int l = __builtin_ctz(m); r |= unsigned(*static_cast<const int*>(c.in[l]) != 0) << l; }
    for (unsigned m = c.mask; m; m &= m - 1) *static_cast<unsigned*>(c.out[__builtin_ctz(m)]) = r;
  }, w);
  return out;
}

namespace {
struct MmaIn { const uint32_t *a, *b; const float* c; };
inline float bf(uint32_t v, int hi) { uint32_t u = hi ? v & 0xffff0000u : v << 16; float f; memcpy(&f, &u, 4); return f; }
}  // namespace
void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, const float* c, const loc_t& w) {
  MmaIn in{a, b, c};
  S->st.mma += cur->lane == 0;
  warp_collective(Op::mma, 0xffffffffu, &in, d, [](Coll& c) {
    float A[16][16], B[16][8], C[16][8];
    for (int l = 0; l < 32; l++) {
      auto& i = *static_cast<const MmaIn*>(c.in[l]);
      int g = l >> 2, t = (l & 3) * 2;
      for (int h = 0; h < 2; h++) {
        A[g][t + h] = bf(i.a[0], h); A[g + 8][t + h] = bf(i.a[1], h);
        A[g][t + 8 + h] = bf(i.a[2], h); A[g + 8][t + 8 + h] = bf(i.a[3], h);
        B[t + h][g] = bf(i.b[0], h); B[t + 8 + h][g] = bf(i.b[1], h);
        C[g][t + h] = i.c[h]; C[g + 8][t + h] = i.c[2 + h];
      }
    }
    for (int m = 0; m < 16; m++) for (int k = 0; k < 16; k++) for (int n = 0; n < 8; n++) C[m][n] += A[m][k] * B[k][n];
    for (int l = 0; l < 32; l++) {
      auto* o = static_cast<float*>(c.out[l]);
      int g = l >> 2, t = (l & 3) * 2;
      o[0] = C[g][t]; o[1] = C[g][t + 1]; o[2] = C[g + 8][t]; o[3] = C[g + 8][t + 1];
    }
  }, w);
}

void ldmatrix(uint32_t* r, int n, const void* row, bool trans, const loc_t& w) {
  if (reinterpret_cast<uintptr_t>(row) & 15) fail("align", w, "ldmatrix row address %p is not 16-byte aligned", row);
  if (!in_shared(row, 16)) fail("space", w, "ldmatrix row address %p is outside shared memory", row);
  struct In { alignas(16) uint16_t v[8]; const void* addr; int n; bool trans; } in;
  TSAN_R(row, 16);
  memcpy(in.v, row, 16);  // for the sanitizers: this thread's own read
  in.addr = row; in.n = n; in.trans = trans;
  uint32_t out[4];
  S->st.ldm += cur->lane == 0 ? n : 0;
  warp_collective(Op::ldmatrix, 0xffffffffu, &in, out, [](Coll& c) {
    int n = static_cast<const In*>(c.in[0])->n;
    bool tr = static_cast<const In*>(c.in[0])->trans;
    for (int j = 0; j < n; j++) {
      int use[8] = {}, worst = 0;  // bank groups of 16 bytes: 8 rows of one matrix should hit 8 different ones
      for (int q = 0; q < 8; q++) { int b = reinterpret_cast<uintptr_t>(static_cast<const In*>(c.in[j * 8 + q])->addr) >> 4 & 7; worst = std::max(worst, ++use[b]); }
      S->st.ldm_conflict_ways += worst - 1;
      for (int l = 0; l < 32; l++) {
        int g = l >> 2, t = (l & 3) * 2;
        uint16_t lo, hi;
        if (!tr) { auto& s = static_cast<const In*>(c.in[j * 8 + g])->v; lo = s[t]; hi = s[t + 1]; }
        else { lo = static_cast<const In*>(c.in[j * 8 + t])->v[g]; hi = static_cast<const In*>(c.in[j * 8 + t + 1])->v[g]; }
        static_cast<uint32_t*>(c.out[l])[j] = uint32_t(lo) | uint32_t(hi) << 16;
      }
    }
  }, w);
  memcpy(r, out, 4 * n);
}

bool in_shared(const void* p, size_t n) {
  auto* c = static_cast<const char*>(p);
  return c >= S->arena && c + n <= S->arena + kArena;
}
static void do_copy(const CpAsync& c) {
  TSAN_R(c.src, c.src_bytes);
  TSAN_W(c.dst, c.bytes);
  TSAN_OFF();
  memcpy(c.dst, c.src, c.src_bytes);
  memset(static_cast<char*>(c.dst) + c.src_bytes, 0, c.bytes - c.src_bytes);
  TSAN_ON();
}
void cp_async(void* dst, const void* src, unsigned bytes, unsigned src_bytes, const loc_t& w) {
  if ((reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src)) & (bytes - 1)) fail("align", w, "cp.async %u: dst %p src %p not aligned", bytes, dst, src);
  if (!in_shared(dst, bytes)) fail("space", w, "cp.async destination %p is outside shared memory", dst);
  CpAsync c{dst, src, bytes, src_bytes, S->cp_group[cur->slot]};
  S->st.cp_async++;
  cur->where = w;
  if (S->cp_early) { do_copy(c); c.bytes = c.src_bytes = 0; }  // adversary 1: lands at once; adversary 2: lands at the wait
  S->cp[cur->slot].push_back(c);
}
void cp_async_commit() { S->cp_group[cur->slot]++; }
void cp_async_wait(unsigned n) {
  auto& q = S->cp[cur->slot];
  int upto = S->cp_group[cur->slot] - int(n);
  size_t k = 0;
  for (; k < q.size() && q[k].group < upto; k++) do_copy(q[k]);
  q.erase(q.begin(), q.begin() + k);
}

void* shared_slot(const void* tag, size_t bytes, size_t align) {
  TSAN_OFF();
  void* r = nullptr;
  for (auto& s : S->slots) if (s.tag == tag) { r = s.p; break; }
  if (!r) {
    size_t off = (S->arena_used + 2 * kRed + align - 1) / align * align;
    if (off + bytes + kRed > kArena) fail("smem", loc_t(), "arena full");
    char* p = S->arena + off;
#ifdef EMU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
#endif
#ifdef EMU_ASAN
    memset(p, 0xFF, bytes);
#else
    memset(p - kRed, 0xFF, bytes + 2 * kRed);
#endif
    S->arena_used = off + bytes;
    S->slots.push_back({tag, p, bytes});
    r = p;
  }
  TSAN_ON();
  return r;
}
void* dyn_shared(size_t) { return S->dyn; }
size_t dyn_shared_bytes() { return S->dyn_bytes; }

Stats& stats() { return g_stats; }
void set_seed(uint64_t s) { cfg().seed = s; }

void run_grid(const char* name, dim3 g, dim3 b, size_t smem, const std::function<void()>& body) {
  uint64_t nb = uint64_t(g.x) * g.y * g.z, nt = uint64_t(b.x) * b.y * b.z;
  if (!nb || !nt || nt > 1024 || b.z > 64 || g.y > 65535 || g.z > 65535) fail("launch", loc_t(), "%s: bad grid %u,%u,%u block %u,%u,%u", name, g.x, g.y, g.z, b.x, b.y, b.z);
  if (smem > cfg().smem_cap) fail("launch", loc_t(), "%s: %zu bytes of dynamic shared memory exceed %zu", name, smem, cfg().smem_cap);
  std::vector<uint64_t> order(nb);
  for (uint64_t i = 0; i < nb; i++) order[i] = i;
  if (cfg().order == Order::random) {
    uint64_t r = cfg().seed * 0x9E3779B97F4A7C15ull | 1;
    for (uint64_t i = nb; i > 1; i--) { r ^= r << 13; r ^= r >> 7; r ^= r << 17; std::swap(order[i - 1], order[(r >> 11) % i]); }
  }
  std::atomic<uint64_t> next{0};
  auto work = [&](int) {
    Sched* own = nullptr;
    {
      std::lock_guard l(g_stats_mu);
      if (!g_pool.v.empty()) { own = g_pool.v.back(); g_pool.v.pop_back(); }
    }
    S = own ? own : new Sched;
    S->body = &body; S->name = name; S->st = Stats{};
    for (;;) {
      uint64_t k = next.fetch_add(1);
      if (k >= nb) break;
      uint64_t i = order[k];
      gridDim = g; blockDim = b;
      blockIdx = {unsigned(i % g.x), unsigned(i / g.x % g.y), unsigned(i / (uint64_t(g.x) * g.y))};
      S->rng = (cfg().seed + 1) * 0x9E3779B97F4A7C15ull ^ (i + 1) * 0xD1B54A32D192ED03ull;
      if (!S->rng) S->rng = 1;
      run_block(smem);
    }
#ifdef EMU_TSAN
    __tsan_acquire(&S->exit_token);
#endif
    std::lock_guard l(g_stats_mu);
    auto& s = S->st;
    g_stats.blocks += s.blocks; g_stats.threads += s.threads; g_stats.switches += s.switches; g_stats.barriers += s.barriers;
    g_stats.collectives += s.collectives; g_stats.mma += s.mma; g_stats.cp_async += s.cp_async; g_stats.ldm += s.ldm; g_stats.ldm_conflict_ways += s.ldm_conflict_ways;
    g_pool.v.push_back(S);
    S = nullptr; cur = nullptr;
  };
  int nw = int(std::min<uint64_t>(nb, std::max(1, cfg().workers)));
  std::vector<std::thread> pool;
  for (int i = 1; i < nw; i++) pool.emplace_back(work, i);
  work(0);
  for (auto& t : pool) t.join();
  g_stats.launches++;
}

__attribute__((weak)) void enqueue_kernel(const char* name, const void*, dim3 g, dim3 b, size_t smem, cudaStream_t, std::function<void()> body) { run_grid(name, g, b, smem, body); }
}  // namespace cuemu
