// A rank killed at each failpoint of a save: the others end naming a lost rank, the directory loads the step before or
// the new one, and the next save goes through.
#include <signal.h>

#include "tests/checkpoint/world_state.h"
#include "tests/support/forked_ranks.h"

using namespace trainer;
using namespace trainer::test;
namespace fs = std::filesystem;

namespace {

constexpr int kRanks = 3;

struct Ended {
  int killed = 0, lost_a_rank = 0, done = 0;
};
Ended count(const std::vector<int>& statuses) {
  Ended e;
  for (const int s : statuses) {
    e.killed += WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL;
    e.lost_a_rank += WIFEXITED(s) && WEXITSTATUS(s) == int(Exit::rank);
    e.done += WIFEXITED(s) && WEXITSTATUS(s) == 0;
  }
  return e;
}

class Run {
 public:
  Run() {
    first.fill(1);
    second.fill(2);
  }
  std::vector<int> save_forked(StateOfWorld& state, int64_t step, int64_t generation, const std::string& failpoint) {
    return fork_ranks(kRanks, [&](const Votes& votes) {
      set_failpoints(failpoint);
      Saver({directory.path, {.keep = 1, .keep_every = {}}, generation, 2}, votes)
          .save(state.view(votes.rank), run_at(step));
    });
  }
  // What is there, loaded by one rank; it must be one of the two states, whole.
  int64_t loaded_step() {
    StateOfWorld to({.dp = 1});
    const auto resumed = resume_newest(directory.path, to.view(0));
    REQUIRE(resumed);
    const int64_t step = resumed->checkpoint.manifest.run.step;
    CHECK(to.hash() == (step == 1 ? first : second).hash());
    return step;
  }

  TemporaryDirectory directory;
  StateOfWorld first{{.dp = kRanks, .zero = 1}}, second{{.dp = kRanks, .zero = 1}};
};

}  // namespace

TEST_CASE("one rank killed at every failpoint of a save") {
  int killed = 0;
  for (const Failpoint& p : failpoints()) {
    if (!p.place.starts_with("save:")) continue;
    for (int rank = 0; rank < kRanks; ++rank) {
      INFO(p.name << " on rank " << rank);
      Run run;
      REQUIRE(count(run.save_forked(run.first, 1, 1, "")).done == kRanks);
      const Ended e = count(run.save_forked(run.second, 2, 2, fmt::format("{}@rank={}:kill", p.name, rank)));
      killed += e.killed;
      CHECK(e.killed + e.lost_a_rank + e.done == kRanks);
      if (rank == 0) CHECK(e.killed == 1);
      if (e.killed == 0) CHECK(e.done == kRanks);
      const int64_t step = run.loaded_step();
      if (e.done > 0) CHECK(step == 2);
      REQUIRE(count(run.save_forked(run.second, 2, 3, "")).done == kRanks);  // leaves nothing of the crashed one
      CHECK(run.loaded_step() == 2);
      CHECK(std::distance(fs::directory_iterator(run.directory.path), fs::directory_iterator{}) == 2);
    }
  }
  CHECK(killed > 35);
}
