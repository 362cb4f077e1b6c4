// A save killed, or denied space, at each of its failpoints: the directory then loads the step before or the new one,
// never garbage.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>

#include "io/restore.h"
#include "io/save.h"
#include "io/state_hash.h"
#include "tests/checkpoint/state.h"

using namespace trainer;
namespace fs = std::filesystem;

namespace {

const std::vector<std::vector<ParamId>> kBuckets{{2, 1}, {3, 0}};
constexpr int64_t kScale = 8000;  // three blocks: several writes are in flight

struct World {
  World() { Saver({directory.path, kRetention, 1, 2}).save(first().view(), run_at(1)); }
  void save_second(int64_t generation) const {
    Saver({directory.path, kRetention, generation, 2}).save(second().view(), run_at(2));
  }
  static const State& first() { return filled<1>(); }
  static const State& second() { return filled<2>(); }

  static constexpr Retention kRetention{.keep = 1, .keep_every = {}};
  TemporaryDirectory directory;

 private:
  template <int kSeed>
  static const State& filled() {
    static const auto state = [] {
      auto s = std::make_unique<State>(awkward_params(kScale), kBuckets, true);
      s->fill(kSeed);
      return s;
    }();
    return *state;
  }
};

bool is_of_save(const Failpoint& p) { return p.place.starts_with("save:") || p.name == "file_write"; }

// Loads what is there; it must be one of the two states, whole.
int64_t loaded_step(const World& world) {
  State to(awkward_params(kScale), kBuckets, true);
  const auto resumed = resume_newest(world.directory.path, to.view());
  REQUIRE(resumed);
  const int64_t step = resumed->checkpoint.manifest.run.step;
  const State& expected = step == 1 ? World::first() : World::second();
  CHECK(state_hash(to.view()) == state_hash(expected.view()));
  return step;
}

}  // namespace

TEST_CASE("killed at every failpoint of a save") {
  int killed = 0;
  for (const char* visit : {"n=1", "n=2"})
    for (const Failpoint& p : failpoints()) {
      if (!is_of_save(p)) continue;
      INFO(p.name << "@" << visit);
      const World world;
      const pid_t child = fork();
      if (child == 0) {
        set_failpoints(std::string(p.name) + "@" + visit + ":kill");
        world.save_second(2);
        _exit(0);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      const bool once = std::string_view(visit) == "n=1";
      if (once) CHECK(was_killed);
      killed += was_killed;
      const int64_t step = loaded_step(world);
      if (!was_killed) CHECK(step == 2);
      world.save_second(3);  // the next save leaves nothing of the crashed one
      CHECK(loaded_step(world) == 2);
      CHECK(std::distance(fs::directory_iterator(world.directory.path), fs::directory_iterator{}) == 2);
    }
  CHECK(killed > 20);
}

TEST_CASE("no space, or a broken disk, at every failpoint that can say so") {
  for (const char* action : {"enospc", "eio"})
    for (const Failpoint& p : failpoints()) {
      if (!is_of_save(p) || p.honours.find(action) == std::string_view::npos) continue;
      INFO(p.name << ":" << action);
      const World world;
      {
        const Failpoints asked(std::string(p.name) + ":" + action);
        try {
          world.save_second(2);
          FAIL("the save went through");
        } catch (const Error& e) { CHECK(e.code() == Exit::disk); }
      }
      CHECK(loaded_step(world) == 1);
      for (const auto& entry : fs::directory_iterator(world.directory.path))
        CHECK(entry.path().filename().string().find(".tmp-") == std::string::npos);
      world.save_second(3);
      CHECK(loaded_step(world) == 2);
    }
}

TEST_CASE("what a disk changes on the way is found at the load") {
  const World world;
  {
    const Failpoints asked("shard_write@n=2:flip=77");
    Saver({world.directory.path, {.keep = 2, .keep_every = {}}, 2, 2}).save(World::second().view(), run_at(2));
  }
  CHECK(loaded_step(world) == 1);
}

TEST_CASE("a bit that flips while loading is found") {
  const World world;
  State to(awkward_params(kScale), kBuckets, true);
  const Failpoints asked("load_block@n=2:flip=5");
  CHECK_THROWS_AS(load_state(open_checkpoint(world.directory.path + "/step-1"), to.view()), Error);
}
