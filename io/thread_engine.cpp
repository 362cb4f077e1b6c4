// File transfers by a few threads with pread and pwrite: everywhere, at some cost in switches.
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "io/engines.h"
#include "io/transfer_progress.h"

namespace trainer {
namespace {

constexpr int kMaxThreads = 8;

int64_t transfer_once(const TransferProgress::Request& r, const Transfer& t) {
  if (r.error != 0) return -r.error;
  const ssize_t n =
      t.write ? pwrite(t.fd, r.data, r.bytes, off_t(r.offset)) : pread(t.fd, r.data, r.bytes, off_t(r.offset));
  return n < 0 ? -errno : n;
}

Completion transfer_all(const Transfer& transfer, uint64_t tag) {
  TransferProgress progress(transfer);
  while (!progress.take(transfer_once(progress.next(), transfer))) {}
  return progress.completion(tag);
}

class ThreadEngine final : public FileEngine {
 public:
  explicit ThreadEngine(int depth) : depth_(depth) {
    for (int i = 0; i < std::min(depth, kMaxThreads); ++i) threads_.emplace_back([this] { serve(); });
  }
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;
  ~ThreadEngine() override {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    submitted_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  std::string_view name() const override { return "threads"; }
  int depth() const override { return depth_; }

  void submit(const Transfer& transfer, uint64_t tag) override {
    assert(in_flight_ < depth_);
    ++in_flight_;
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back({transfer, tag});
    }
    submitted_.notify_one();
  }

  Completion wait() override {
    assert(in_flight_ > 0);
    std::unique_lock lock(mutex_);
    completed_.wait(lock, [this] { return !done_.empty(); });
    const Completion c = done_.front();
    done_.pop_front();
    --in_flight_;
    return c;
  }

 private:
  struct Job {
    Transfer transfer;
    uint64_t tag = 0;
  };

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      submitted_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;  // what is queued is finished first
      const Job job = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const Completion c = transfer_all(job.transfer, job.tag);
      lock.lock();
      done_.push_back(c);
      completed_.notify_one();
    }
  }

  const int depth_;
  int in_flight_ = 0;  // of the one user's thread
  std::mutex mutex_;
  std::condition_variable submitted_, completed_;
  std::deque<Job> queue_;        // GUARDED_BY(mutex_)
  std::deque<Completion> done_;  // GUARDED_BY(mutex_)
  bool stop_ = false;            // GUARDED_BY(mutex_)
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<FileEngine> make_thread_engine(int depth) { return std::make_unique<ThreadEngine>(depth); }

}  // namespace trainer
