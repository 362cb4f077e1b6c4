#include "kernels/cpu/cpu_device.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "kernels/cpu/pool.h"

namespace trainer::cpu {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kSmallRing = size_t{64} << 10;
size_t aligned(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

using Clock = std::chrono::steady_clock;
int64_t nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

// A count that only grows. Who waits for a number is woken when it is reached, not at every step towards it: the host
// waits for hundreds of commands, on a core that the workers need.
class Count {
 public:
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  void advance(uint64_t to) {
    value_.store(to);  // in one order with wanted_: either this sees who waits, or who waits sees this
    if (wanted_.load() > to) return;
    const std::lock_guard lock(mutex_);
    wanted_.store(kNobody);
    reached_.notify_all();
  }
  // A short spin catches what is about to happen, then the thread sleeps.
  void await(uint64_t target) {
    for (int i = 0; i < 2000; ++i, __builtin_ia32_pause())
      if (value_.load(std::memory_order_acquire) >= target) return;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (target < wanted_.load()) wanted_.store(target);
      if (value_.load() >= target) return;
      reached_.wait(lock);
    }
  }

 private:
  static constexpr uint64_t kNobody = UINT64_MAX;
  alignas(128) std::atomic<uint64_t> value_{0};
  std::atomic<uint64_t> wanted_{kNobody};  // the least that anybody sleeps for; lowered under the mutex
  std::mutex mutex_;
  std::condition_variable reached_;
};

}  // namespace

// One producer (the host), one consumer (the thread). A record is a header and the copied arguments; records never
// wrap: what does not fit at the end of the ring starts again at its beginning.
class LaneThread final : public Stream {
 public:
  LaneThread(Lane lane, CpuDevice& device, Pool* pool)
      : lane_(lane),
        device_(device),
        own_pool_(pool ? nullptr : std::make_unique<Pool>(1)),
        pool_(pool ? *pool : *own_pool_),
        capacity_(std::max(kSmallRing, aligned(2 * device.options_.ring_bytes[size_t(lane)]))),
        ring_(static_cast<std::byte*>(std::aligned_alloc(kAlign, capacity_)), &std::free),
        random_(uint32_t(device.options_.delay_seed * 64 + uint64_t(lane) + 1)),
        thread_([this] { work(); }) {}
  ~LaneThread() override {
    push(nullptr, nullptr, 0);
    thread_.join();
  }
  DeviceKind kind() const override { return DeviceKind::cpu; }
  void* native() override { return &pool_; }
  std::span<std::byte> scratch() override {
    const size_t l = size_t(lane_);
    return device_.arena_.subspan(device_.scratch_.offset[l], device_.scratch_.bytes[l]);
  }
  void submit(void (*run)(Stream&, const void*), const void* args, size_t bytes) override { push(run, args, bytes); }
  Event record() override { return {lane_, issued_.value()}; }
  void wait(Event event) override {
    if (event.lane == lane_ || event.count == 0) return;  // a lane runs in order
    struct Args {
      LaneThread* on;
      uint64_t count;
    } args{&device_.thread(event.lane), event.count};
    push(
        [](Stream& self, const void* a) {
          const auto& args = *static_cast<const Args*>(a);
          const auto start = Clock::now();
          args.on->await(args.count);
          auto& lane = static_cast<LaneThread&>(self);
          lane.waited_[size_t(args.on->lane_)].fetch_add(nanoseconds_since(start), std::memory_order_relaxed);
        },
        &args, sizeof args);
  }
  LaneTimes times() const {
    LaneTimes t;
    double waited = 0;
    for (size_t l = 0; l < kLanes; ++l)
      waited += t.waited[l] = double(waited_[l].load(std::memory_order_relaxed)) * 1e-9;
    t.busy = double(running_.load(std::memory_order_relaxed)) * 1e-9 - waited;
    return t;
  }
  void await(uint64_t count) { done_.await(count); }
  void rethrow() const {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
  }

 private:
  struct Header {
    void (*run)(Stream&, const void*);
    size_t bytes;  // of the record, header included; to the end of the ring where `skip`
    bool skip;
  };
  void push(void (*run)(Stream&, const void*), const void* args, size_t bytes) {
    const size_t record = aligned(sizeof(Header)) + aligned(bytes);
    check(2 * record <= capacity_, Exit::device, "[lane {}] a command of {} bytes in a ring of {}", name_of(lane_),
          record, capacity_);
    const size_t at = size_t(head_ % capacity_);
    if (at + record > capacity_) {
      reserve(capacity_ - at);
      new (ring_.get() + at) Header{nullptr, capacity_ - at, true};
      head_ += capacity_ - at;
    }
    reserve(record);
    std::byte* p = ring_.get() + head_ % capacity_;
    new (p) Header{run, record, false};
    if (bytes) std::memcpy(p + aligned(sizeof(Header)), args, bytes);
    head_ += record;
    issued_.advance(issued_.value() + 1);
  }
  // A full ring holds the host back. That cannot deadlock: every wait of a command points to commands issued before it.
  void reserve(size_t bytes) {
    if (head_ + bytes > capacity_) tail_.await(head_ + bytes - capacity_);
  }
  void work() {
    if (!own_pool_) pool_.pin_caller();
    for (uint64_t n = 0, at = 0;; ++n) {
      issued_.await(n + 1);
      auto* header = reinterpret_cast<const Header*>(ring_.get() + at % capacity_);
      if (header->skip) {
        at += header->bytes;
        header = reinterpret_cast<const Header*>(ring_.get() + at % capacity_);
      }
      if (!header->run) return;
      delay();
      const auto start = Clock::now();
      run(*header);
      running_.fetch_add(nanoseconds_since(start), std::memory_order_relaxed);
      at += header->bytes;
      tail_.advance(at);
      done_.advance(n + 1);
    }
  }
  void run(const Header& header) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      header.run(*this, reinterpret_cast<const std::byte*>(&header) + aligned(sizeof(Header)));
    } catch (...) {
      error_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
    }
  }
  void delay() {
    if (device_.options_.delay_seed && random_() % 3 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
  }

  const Lane lane_;
  CpuDevice& device_;
  std::unique_ptr<Pool> own_pool_;
  Pool& pool_;
  const size_t capacity_;
  std::unique_ptr<std::byte, void (*)(void*)> ring_;
  std::minstd_rand random_;
  uint64_t head_ = 0;                // bytes ever written; the host's
  std::atomic<int64_t> running_{0};  // nanoseconds in commands, waits included
  std::array<std::atomic<int64_t>, kLanes> waited_{};
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  Count issued_, tail_, done_;  // commands, bytes of the ring, commands
  std::thread thread_;
};

CpuDevice::CpuDevice(std::span<std::byte> arena, const ScratchMap& scratch, const CpuOptions& options)
    : arena_(arena),
      scratch_(scratch),
      options_(options),
      pool_(std::make_unique<Pool>(options.threads, options.pin)) {}
CpuDevice::~CpuDevice() = default;

LaneThread& CpuDevice::thread(Lane l) {
  auto& lane = lanes_[size_t(l)];
  if (!lane) lane = std::make_unique<LaneThread>(l, *this, l == Lane::compute ? pool_.get() : nullptr);
  return *lane;
}
Stream& CpuDevice::lane(Lane l) { return thread(l); }
// A lane that failed goes on without its effects, so another lane's event can be reached on wrong data: all are asked.
void CpuDevice::wait(Event e) {
  if (!lanes_[size_t(e.lane)]) return;
  lanes_[size_t(e.lane)]->await(e.count);
  for (const auto& lane : lanes_)
    if (lane) lane->rethrow();
}
std::optional<LaneTimes> CpuDevice::times(Lane l) {
  const auto& lane = lanes_[size_t(l)];
  return lane ? lane->times() : LaneTimes{};
}
void CpuDevice::drain() {
  for (auto& lane : lanes_)
    if (lane) wait(lane->record());
}

}  // namespace trainer::cpu
