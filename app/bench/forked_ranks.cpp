#include "app/bench/forked_ranks.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr int kMostRanks = 64;
constexpr size_t kMostText = 240;

struct Page {
  struct Said {
    std::atomic<uint32_t> rounds;
    std::array<std::array<char, kMostText>, 2> text;  // of this round and the last: none is ahead by two
  };
  std::array<Said, kMostRanks> ranks;
};

class PageExchange final : public Exchange {
 public:
  PageExchange(Page& page, int rank, int size) : page_(page), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> all_gather(std::string_view mine) override {
    check(mine.size() < kMostText, Exit::rank, "[bench] {} characters in an exchange", mine.size());
    Page::Said& own = page_.ranks[size_t(rank_)];
    own.text[round_ % 2].fill(0);
    mine.copy(own.text[round_ % 2].data(), mine.size());
    own.rounds.store(round_ + 1, std::memory_order_release);
    std::vector<std::string> heard;
    for (int r = 0; r < size_; ++r) {
      const Page::Said& other = page_.ranks[size_t(r)];
      while (other.rounds.load(std::memory_order_acquire) <= round_) usleep(100);
      heard.emplace_back(other.text[round_ % 2].data());
    }
    ++round_;
    return heard;
  }
  void on_failure(FailureHandler) override {}  // the parent kills all
  void leave(std::string_view) noexcept override {}

 private:
  Page& page_;
  const int rank_, size_;
  uint32_t round_ = 0;
};

void pin_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

[[noreturn]] void child(Page& page, int rank, int n, const std::function<void(Exchange&)>& rank_main) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (n <= sysconf(_SC_NPROCESSORS_ONLN)) pin_to(rank);
  try {
    PageExchange exchange(page, rank, n);
    rank_main(exchange);
    _exit(0);
  } catch (const std::exception& e) { std::fprintf(stderr, "rank %d: %s\n", rank, e.what()); }
  _exit(int(Exit::rank));
}

}  // namespace

void run_forked(int n, const std::function<void(Exchange&)>& rank_main) {
  check(n >= 1 && n <= kMostRanks, Exit::usage, "--ranks: wanted 1 to {}, found {}", kMostRanks, n);
  void* shared = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(shared != MAP_FAILED, Exit::memory, "[bench] no page to share");
  Page& page = *new (shared) Page{};
  std::vector<pid_t> ranks;
  for (int r = 0; r < n; ++r) {
    const pid_t pid = fork();
    check(pid >= 0, Exit::rank, "[bench] no process for rank {}", r);
    if (pid == 0) child(page, r, n, rank_main);
    ranks.push_back(pid);
  }
  bool failed = false;
  while (!ranks.empty()) {
    int status = 0;
    std::erase(ranks, wait(&status));
    if (status == 0 || failed) continue;
    failed = true;
    for (const pid_t pid : ranks) kill(pid, SIGKILL);
  }
  munmap(shared, sizeof(Page));
  check(!failed, Exit::rank, "[bench] a rank failed");
}

}  // namespace trainer
