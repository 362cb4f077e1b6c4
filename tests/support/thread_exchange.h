// The exchange of ranks that are threads of one process, for tests.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "parallel/comm/exchange.h"

namespace trainer {

// What the ranks share; it outlives their exchanges.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size) : size_(size), said_(size_t(size)), handlers_(size_t(size)) {}
  ~ThreadWorld() {
    for (std::thread& t : notifiers_) t.join();
  }
  int size() const { return size_; }
  std::vector<std::string> all_gather(int rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    check_alive();
    const uint64_t round = round_;
    said_[size_t(rank)] = mine;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      heard_ = said_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || !why_.empty(); });
    if (round_ == round) check_alive();
    return heard_;
  }
  void on_failure(int rank, Exchange::FailureHandler handler) {
    const std::lock_guard lock(mutex_);
    handlers_[size_t(rank)] = std::move(handler);
    if (!why_.empty()) notify();
  }
  // As if the rank had died or given up.
  void fail_rank(int rank, std::string_view why) {
    const std::lock_guard lock(mutex_);
    handlers_[size_t(rank)] = nullptr;
    if (!why_.empty()) return;
    why_ = why;
    notify();
    changed_.notify_all();
  }
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    handlers_[size_t(rank)] = nullptr;
  }

 private:
  void check_alive() const { check(why_.empty(), Exit::rank, "{}", why_); }
  void notify() {  // on another thread, as the contract says
    for (auto& handler : handlers_)
      if (handler) notifiers_.emplace_back(std::exchange(handler, nullptr), why_);
  }
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> said_, heard_;
  std::vector<Exchange::FailureHandler> handlers_;
  std::vector<std::thread> notifiers_;
  std::string why_;
  uint64_t round_ = 0;
  int arrived_ = 0;
};

class ThreadExchange final : public Exchange {
 public:
  ThreadExchange(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  std::vector<std::string> all_gather(std::string_view mine) override { return world_.all_gather(rank_, mine); }
  void on_failure(FailureHandler handler) override { world_.on_failure(rank_, std::move(handler)); }
  void leave(std::string_view why) noexcept override {
    if (why.empty()) world_.leave(rank_);
    else world_.fail_rank(rank_, why);
  }

 private:
  ThreadWorld& world_;
  const int rank_;
};

}  // namespace trainer
