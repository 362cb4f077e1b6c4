// Ranks as threads that agree on checkpoints through memory.
#pragma once
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "io/votes.h"

namespace trainer::test {

class ThreadVotes {
 public:
  explicit ThreadVotes(int size) : said_(size_t(size)) {}
  Votes of(int rank) {
    return {rank, int(said_.size()), [this, rank](std::string_view mine) { return all_gather(rank, mine); }};
  }
  void leave(int rank) {
    const std::scoped_lock lock(mutex_);
    gone_ = rank;
    changed_.notify_all();
  }

 private:
  std::vector<std::string> all_gather(int rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    said_[size_t(rank)] = mine;
    const int round = round_;
    if (++arrived_ == int(said_.size())) {
      heard_ = said_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || gone_ >= 0; });
    check(round_ != round, Exit::rank, "rank {} is gone", gone_);
    return heard_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> said_, heard_;
  int arrived_ = 0, round_ = 0, gone_ = -1;
};

// ThreadSanitizer does not see liburing unmap its rings: those of two threads, one after the other at one address, look
// like a race to it. Ranks as threads use the other file engine then.
#if defined(__SANITIZE_THREAD__)
inline void choose_file_engine() { setenv("TRAINER_IO", "threads", 1); }
#else
inline void choose_file_engine() {}
#endif

// Runs `work` as every rank and returns what each threw; empty: nothing.
inline std::vector<std::string> run_ranks(int size, const std::function<void(const Votes&)>& work) {
  choose_file_engine();
  ThreadVotes votes(size);
  std::vector<std::string> thrown(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r)
    ranks.emplace_back([&, r] {
      try {
        work(votes.of(r));
      } catch (const std::exception& e) {
        thrown[size_t(r)] = e.what();
        votes.leave(r);
      }
    });
  for (std::thread& t : ranks) t.join();
  return thrown;
}

}  // namespace trainer::test
