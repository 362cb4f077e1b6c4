// Runs a function on several ranks, each a thread. What the first rank to fail threw is thrown again; a hang ends the
// program and names the ranks that had not returned.
#pragma once
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>

#include "tests/support/thread_exchange.h"

namespace trainer {

// How much longer than on an idle machine what happens at once may take: other tests run beside it, and some under
// ThreadSanitizer.
constexpr int kPatience = 4;

inline void run_ranks(int n, const std::function<void(Exchange&)>& rank_main,
                      std::chrono::seconds limit = std::chrono::seconds(30)) {
  ThreadWorld world(n);
  std::mutex mutex;
  std::condition_variable returned;
  std::vector<bool> done(size_t(n), false);
  std::exception_ptr first;
  const auto run = [&](int rank) {
    ThreadExchange exchange(world, rank);
    std::exception_ptr thrown;
    std::string why;
    try {
      rank_main(exchange);
    } catch (const std::exception& e) {
      thrown = std::current_exception();
      why = e.what();
    } catch (...) {
      thrown = std::current_exception();
      why = "a test failed";
    }
    {
      const std::lock_guard lock(mutex);
      if (thrown && !first) first = thrown;
      done[size_t(rank)] = true;
      returned.notify_all();
    }
    exchange.leave(why);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) threads.emplace_back(run, r);
  {
    std::unique_lock lock(mutex);
    const auto all = [&] { return std::count(done.begin(), done.end(), true) == n; };
    if (!returned.wait_for(lock, limit, all)) {
      for (int r = 0; r < n; ++r)
        if (!done[size_t(r)]) std::fprintf(stderr, "rank %d of %d has not returned\n", r, n);
      std::abort();
    }
  }
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trainer
