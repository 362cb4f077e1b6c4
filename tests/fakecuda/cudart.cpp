// fake_cudart.cpp - test-only CUDA runtime: devices are host memory, streams are lazy queues that run in a seeded random order.
#include "tests/fakecuda/fake_cuda.h"
#include "tests/cuemu/emulator.h"
#include "tests/cuemu/quiet_lock.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(a, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(a, n) ((void)0)
#endif
#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_read_range(void*, unsigned long);
extern "C" void __tsan_write_range(void*, unsigned long);
#endif
namespace fake {
using clk = std::chrono::steady_clock;
struct Rec { bool done = false; clk::time_point t; char token = 0; };  // one cudaEventRecord
struct Stream { std::deque<Op> q; bool running = false; int dev = 0; void *tsan = nullptr, *stack = nullptr; char token = 0; };
struct Event { std::shared_ptr<Rec> rec; };
struct Alloc { size_t n; int dev; };
struct Host { size_t n; };
Counters counters{};
static QuietLock mu;
static std::vector<Stream*> streams;
static std::map<uintptr_t, Alloc> dev_allocs;
static std::map<uintptr_t, Host> pinned;
static std::map<const void*, int> func_smem;
static uint64_t rng = [] { auto* s = getenv("FAKECUDA_SEED"); return (s ? strtoull(s, nullptr, 10) : 1) * 0x9E3779B97F4A7C15ull | 1; }();
static const bool eager = getenv("FAKECUDA_EAGER") != nullptr;  // run every op at submission (best case) instead of lazily
static thread_local int tl_dev = 0;
static thread_local cudaError_t last = cudaSuccess;
static int ndev() { auto* s = getenv("FAKECUDA_DEVICES"); return s ? atoi(s) : 8; }
static size_t mem_cap() { auto* s = getenv("FAKECUDA_MEM_MB"); return size_t(s ? atoi(s) : 1024) << 20; }
static size_t used[64];
// all device memory lives in one reserved region that the host cannot touch while no device op runs
static constexpr size_t kRegion = size_t(8) << 30;
static char* region = nullptr;
static size_t region_top = 0;
static int device_busy = 0;
static std::multimap<size_t, uintptr_t> free_list;

uint32_t rnd() { rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17; return uint32_t(rng >> 20); }
void fail(const char* fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stderr, "FAKECUDA ERROR: ");
  vfprintf(stderr, fmt, ap);
  fprintf(stderr, "\n");
  fflush(stderr);
  _exit(67);
}
static thread_local bool tl_hold = false;  // this thread holds mu through Lock
Lock::Lock() { mu.lock(); tl_hold = true; }
Lock::~Lock() { tl_hold = false; mu.unlock(); }
static bool is_dev(const void* p) { return region && p >= region && p < region + kRegion; }
static void live(const void* p, size_t n) {  // at execution time: the memory an op touches must still be allocated
  if (!n || !is_dev(p)) return;
  if (!tl_hold) mu.lock();
  auto it = dev_allocs.upper_bound(uintptr_t(p));
  bool ok = it != dev_allocs.begin() && (--it, uintptr_t(p) + n <= it->first + it->second.n);
  if (!tl_hold) mu.unlock();
  if (!ok) fail("an operation touches device memory [%p,+%zu) that was freed before it ran", p, n);
}
void acc_read(const void* p, size_t n) {
  live(p, n);
#ifdef EMU_TSAN
  __tsan_read_range(const_cast<void*>(p), n);
#endif
}
void acc_write(void* p, size_t n) {
  live(p, n);
#ifdef EMU_TSAN
  __tsan_write_range(p, n);
#endif
}
static void open_mem() { if (device_busy++ == 0 && region) mprotect(region, (region_top + 4095) & ~size_t(4095), PROT_READ | PROT_WRITE); }
static void close_mem() { if (--device_busy == 0 && region) mprotect(region, (region_top + 4095) & ~size_t(4095), PROT_NONE); }

static Stream* get(cudaStream_t s) {
  static std::map<int, Stream*> def;
  if (s) return reinterpret_cast<Stream*>(s);
  counters.default_stream++;
  auto*& d = def[tl_dev];
  if (!d) { d = new Stream; d->dev = tl_dev; streams.push_back(d); }
  return d;
}
#ifdef EMU_TSAN
extern "C" void cuemu_switch(void** save, void* load);
static thread_local Op* tl_op;
static thread_local void *tl_host_sp, *tl_host_fiber;
static void op_entry() {
  tl_op->run();
  tl_op->run = nullptr; tl_op->ready = nullptr;  // destroy the closure in the stream's own context
  void* dead;
  __tsan_switch_to_fiber(tl_host_fiber, __tsan_switch_to_fiber_no_sync);
  cuemu_switch(&dead, tl_host_sp);
}
static void run_as_stream(Stream* s, Op& op) {  // own TSan identity and own stack: no false sharing of host stack memory
  tl_host_fiber = __tsan_get_current_fiber();
  constexpr size_t n = 1 << 20;
  if (!s->tsan) { s->tsan = __tsan_create_fiber(0); s->stack = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
  auto* top = reinterpret_cast<void**>(static_cast<char*>(s->stack) + n);
  *--top = nullptr; *--top = reinterpret_cast<void*>(&op_entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  tl_op = &op;
  __tsan_switch_to_fiber(s->tsan, __tsan_switch_to_fiber_no_sync);
  __tsan_acquire(&s->token);  // submission happens-before execution
  cuemu_switch(&tl_host_sp, top);
}
#endif
// Runs one ready op chosen at random. Called with mu held; returns false when none is ready.
static bool step(std::unique_lock<QuietLock>& l, bool& any_running) {
  Stream* cand[256];
  int n = 0;
  any_running = false;
  for (auto* s : streams) {
    if (s->running) { any_running = true; continue; }
    if (!s->q.empty() && (!s->q.front().ready || s->q.front().ready()) && n < 256) cand[n++] = s;
  }
  if (!n) return false;
  Stream* s = cand[rnd() % n];
  s->running = true;
  open_mem();
  Op op = std::move(s->q.front());
  l.unlock();
#ifdef EMU_TSAN
  run_as_stream(s, op);
#else
  op.run();
#endif
  l.lock();
  close_mem();
  counters.ops++;
  s->q.pop_front();
  s->running = false;
  return true;
}
void drive(const std::function<bool()>& done, const char* why) {
  std::unique_lock l(mu);
  auto t0 = clk::now();
  uint64_t seen = counters.ops;
  while (!done()) {
    bool busy;
    if (step(l, busy)) { t0 = clk::now(); continue; }
    l.unlock();
    usleep(busy ? 50 : 200);
    l.lock();
    if (counters.ops != seen || busy) { seen = counters.ops; t0 = clk::now(); }
    static const double limit = getenv("FAKECUDA_HANG_S") ? atof(getenv("FAKECUDA_HANG_S")) : 5;
    if (std::chrono::duration<double>(clk::now() - t0).count() > limit) {
      std::string m;
      for (size_t i = 0; i < streams.size(); i++) if (!streams[i]->q.empty()) m += "\n  stream " + std::to_string(i) + " (device " + std::to_string(streams[i]->dev) + ") blocked in " + streams[i]->q.front().what;
      fail("hang: no operation can run while the host waits in %s; blocked streams:%s", why, m.empty() ? " none (other ranks never submitted their part)" : m.c_str());
    }
  }
}
void enqueue(cudaStream_t st, Op op) {
  Stream* s;
  std::shared_ptr<bool> fin;
  {
    std::lock_guard g(mu);
    s = get(st);
#ifdef EMU_TSAN
    __tsan_release(&s->token);
#endif
    if (eager && !op.ready) { fin = std::make_shared<bool>(false); auto r = op.run; op.run = [r, fin] { r(); *fin = true; }; }
    s->q.push_back(std::move(op));
    }
  if (fin) drive([&] { return *fin; }, "eager submission");
}
static bool host_pinned(const void* p, size_t n) {
  auto it = pinned.upper_bound(uintptr_t(p));
  if (it == pinned.begin()) return false;
  --it;
  return uintptr_t(p) + n <= it->first + it->second.n;
}
void check_dev(const void* p, size_t n, const char* what) {
  if (!n) return;
  std::lock_guard g(mu);
  auto it = dev_allocs.upper_bound(uintptr_t(p));
  if (it != dev_allocs.begin()) { --it; if (uintptr_t(p) >= it->first && uintptr_t(p) + n <= it->first + it->second.n) return; }
  fail("%s: [%p,+%zu) is not inside a live device allocation", what, p, n);
}
static void sync_stream(Stream* s, const char* why) {
  drive([s] { return s->q.empty() && !s->running; }, why);
#ifdef EMU_TSAN
  if (s->tsan) {  // everything the stream did happens-before the host's return
    char tok; void* me = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(s->tsan, __tsan_switch_to_fiber_no_sync); __tsan_release(&tok);
    __tsan_switch_to_fiber(me, __tsan_switch_to_fiber_no_sync); __tsan_acquire(&tok);
  }
#endif
}
static bool inject(const char* api) {  // FAKECUDA_FAIL=cudaMalloc:3 -> third call fails
  static const char* e = getenv("FAKECUDA_FAIL");
  static int n = e && strchr(e, ':') ? atoi(strchr(e, ':') + 1) : 0;
  return e && !strncmp(e, api, strlen(api)) && e[strlen(api)] == ':' && --n == 0;
}
static cudaError_t err(cudaError_t e) { if (e != cudaSuccess) last = e; return e; }
static cudaError_t dmalloc(void** p, size_t n) {
  std::lock_guard g(mu);
  if (inject("cudaMalloc") || used[tl_dev] + n > mem_cap()) return err(cudaErrorMemoryAllocation);
  if (!region) {
    region = static_cast<char*>(mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASAN_POISON_MEMORY_REGION(region, kRegion);
  }
  size_t sz = (std::max<size_t>(n, 1) + 255 + 256) / 256 * 256;  // at least 256 bytes of redzone
  auto it = free_list.find(sz);
  char* q;
  if (it != free_list.end()) { q = reinterpret_cast<char*>(it->second); free_list.erase(it); }
  else { q = region + region_top; region_top += sz; if (region_top > kRegion) return err(cudaErrorMemoryAllocation); }
  ASAN_UNPOISON_MEMORY_REGION(q, n);
  open_mem();
  mprotect(region, (region_top + 4095) & ~size_t(4095), PROT_READ | PROT_WRITE);
  memset(q, 0xFF, n);  // NaN poison
  close_mem();
  dev_allocs[uintptr_t(q)] = {n, tl_dev};
  used[tl_dev] += n;
  *p = q;
  return cudaSuccess;
}
static void dfree(void* p) {
  std::lock_guard g(mu);
  auto it = dev_allocs.find(uintptr_t(p));
  if (it == dev_allocs.end()) fail("cudaFree(%p): not a live device allocation", p);
  size_t n = it->second.n, sz = (std::max<size_t>(n, 1) + 255 + 256) / 256 * 256;
  open_mem(); memset(p, 0xFF, n); close_mem();
  ASAN_POISON_MEMORY_REGION(p, sz);
  used[it->second.dev] -= n;
  free_list.emplace(sz, uintptr_t(p));
  dev_allocs.erase(it);
}
static cudaError_t memcpy_async(void* d, const void* s, size_t n, cudaMemcpyKind k, cudaStream_t st) {
  if (!n) return cudaSuccess;
  bool dd = is_dev(d), sd = is_dev(s);
  if (k == cudaMemcpyHostToDevice && (!dd || sd)) fail("cudaMemcpyAsync H2D: wrong pointer kinds");
  if (k == cudaMemcpyDeviceToHost && (dd || !sd)) fail("cudaMemcpyAsync D2H: wrong pointer kinds");
  if (k == cudaMemcpyDeviceToDevice && !(dd && sd)) fail("cudaMemcpyAsync D2D: host pointer");
  if (dd) check_dev(d, n, "cudaMemcpyAsync dst");
  if (sd) check_dev(s, n, "cudaMemcpyAsync src");
  counters.copies++;
  auto copy = [=] { acc_read(s, n); acc_write(d, n); memcpy(d, s, n); };
  bool pg = (!dd && !host_pinned(d, n)) || (!sd && !host_pinned(s, n));
  if (pg) counters.pageable_async++;
  if (!sd && pg) { auto tmp = std::make_shared<std::vector<char>>((const char*)s, (const char*)s + n); enqueue(st, {"memcpy H2D (pageable)", [=] { acc_write(d, n); memcpy(d, tmp->data(), n); }, {}}); return cudaSuccess; }
  enqueue(st, {dd ? (sd ? "memcpy D2D" : "memcpy H2D") : "memcpy D2H", copy, {}});
  if (!dd && pg) { Stream* q; { std::lock_guard g(mu); q = get(st); } sync_stream(q, "pageable cudaMemcpyAsync D2H"); }
  return cudaSuccess;
}
}  // namespace fake
using namespace fake;

namespace cuemu {
void enqueue_kernel(const char* name, const void* fn, dim3 g, dim3 b, size_t smem, cudaStream_t s, std::function<void()> body) {
  {
    std::lock_guard l(mu);
    auto it = func_smem.find(fn);
    size_t lim = it == func_smem.end() ? 48 << 10 : size_t(it->second);
    if (smem > lim || size_t(b.x) * b.y * b.z > 1024 || !g.x) { last = cudaErrorInvalidConfiguration; return; }  // as the real launch does
  }
  enqueue(s, {name, [=] { counters.kernels++; run_grid(name, g, b, smem, body); }, {}});
}
}  // namespace cuemu

extern "C" {
cudaError_t cudaMalloc(void** p, size_t n) { return dmalloc(p, n); }
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) {  // host and device reach it; a sanitizer sees its ends
  *p = malloc(n ? n : 1);
  memset(*p, 0xFF, n);
  std::lock_guard g(mu);
  dev_allocs[uintptr_t(*p)] = {n, -1};
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return dmalloc(p, n); }
cudaError_t cudaDeviceSynchronize() {
  std::vector<Stream*> v;
  { std::lock_guard g(mu); for (auto* s : streams) if (s->dev == tl_dev) v.push_back(s); }
  for (auto* s : v) sync_stream(s, "cudaDeviceSynchronize");
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (!p) return cudaSuccess;
  cudaDeviceSynchronize();
  if (is_dev(p)) dfree(p);
  else {
    std::lock_guard g(mu);
    if (!dev_allocs.erase(uintptr_t(p))) fail("cudaFree(%p): not a live allocation", p);
    free(p);
  }
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  size_t n;
  { std::lock_guard g(mu); auto it = dev_allocs.find(uintptr_t(p)); if (it == dev_allocs.end()) fail("cudaFreeAsync(%p): not a live device allocation", p); n = it->second.n; }
  enqueue(s, {"cudaFreeAsync", [=] { acc_write(p, n); dfree(p); }, {}});  // a free is a write for the race detector
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  if (posix_memalign(p, 4096, n)) return err(cudaErrorMemoryAllocation);
  memset(*p, 0xFF, n);
  std::lock_guard g(mu);
  pinned[uintptr_t(*p)] = {n};
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) { cudaDeviceSynchronize(); { std::lock_guard g(mu); pinned.erase(uintptr_t(p)); } free(p); return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind k, cudaStream_t st) { return memcpy_async(d, s, n, k, st); }
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind k) { memcpy_async(d, s, n, k, 0); return cudaStreamSynchronize(0); }
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t st) {
  check_dev(d, n, "cudaMemsetAsync");
  enqueue(st, {"memset", [=] { acc_write(d, n); memset(d, v, n); }, {}});
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  auto* x = new Stream;
  x->dev = tl_dev;
  std::lock_guard g(mu);
  streams.push_back(x);
  *s = reinterpret_cast<cudaStream_t>(x);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { return cudaStreamCreateWithPriority(s, f, 0); }
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithPriority(s, 0, 0); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { Stream* q; { std::lock_guard g(mu); q = get(s); } sync_stream(q, "cudaStreamSynchronize"); return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  auto* q = reinterpret_cast<Stream*>(s);
  sync_stream(q, "cudaStreamDestroy");
  std::lock_guard g(mu);
  std::erase(streams, q);
  delete q;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  std::unique_lock l(mu);
  bool b;
  if (rnd() & 1) step(l, b);
  Stream* q = get(s);
  return q->q.empty() && !q->running ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { *e = reinterpret_cast<cudaEvent_t>(new Event); return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete reinterpret_cast<Event*>(e); return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  auto r = std::make_shared<Rec>();
  reinterpret_cast<Event*>(e)->rec = r;
  enqueue(s, {"event record", [r] {
#ifdef EMU_TSAN
    __tsan_release(&r->token);
#endif
    std::lock_guard g(mu); r->done = true; r->t = clk::now(); }, {}});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  auto r = reinterpret_cast<Event*>(e)->rec;
  if (!r) return cudaSuccess;  // never recorded: no-op, as in CUDA
  enqueue(s, {"wait for an event", [r] {
#ifdef EMU_TSAN
    __tsan_acquire(&r->token);
#endif
  }, [r] { return r->done; }});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  auto r = reinterpret_cast<Event*>(e)->rec;
  if (!r) return cudaSuccess;
  drive([r] { return r->done; }, "cudaEventSynchronize");
#ifdef EMU_TSAN
  __tsan_acquire(&r->token);
#endif
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  auto r = reinterpret_cast<Event*>(e)->rec;
  std::unique_lock l(mu);
  bool b;
  if (r && !r->done && (rnd() & 1)) step(l, b);
  return !r || r->done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  auto x = reinterpret_cast<Event*>(a)->rec, y = reinterpret_cast<Event*>(b)->rec;
  if (!x || !y) return err(cudaErrorInvalidResourceHandle);
  if (!x->done || !y->done) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(y->t - x->t).count();
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* u) { enqueue(s, {"host function", [=] { f(u); }, {}}); return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute a, int v) {
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (v > 227 << 10) return err(cudaErrorInvalidValue);
    std::lock_guard g(mu);
    func_smem[f] = v;
  }
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) { if (d < 0 || d >= ndev()) return err(cudaErrorInvalidDevice); tl_dev = d; return cudaSuccess; }
cudaError_t cudaGetDevice(int* d) { *d = tl_dev; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* n) { *n = ndev(); return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) { std::lock_guard g(mu); *t = mem_cap(); *f = *t - used[tl_dev]; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  memset((void*)p, 0, sizeof *p);
  strcpy(p->name, "emulated device (not a GPU)");
  p->major = 9; p->minor = 0; p->multiProcessorCount = 4; p->totalGlobalMem = mem_cap(); p->sharedMemPerBlockOptin = 227 << 10; p->sharedMemPerBlock = 48 << 10; p->warpSize = 32; p->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { auto e = last; last = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError() { return last; }
const char* cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" : "emulated CUDA error"; }
}
