// Orders as text: what the file of a custom schedule may say, and every way in which it may be wrong.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "parallel/schedules/problem.h"
#include "parallel/schedules/schedules.h"

using namespace trainer;

namespace {

class PlanFile {
 public:
  explicit PlanFile(const std::string& text) { std::ofstream(path_) << text; }
  ~PlanFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  Orders orders(const PipeShape& p) const { return find_schedule("custom:" + path_).orders(p); }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / fmt::format("orders-{}.txt", ::getpid());
};

// Two stages of one chunk, two micro-batches.
const std::string kSound = "F0 F1 B0 B1\nF0 B0 F1 B1\n";
void refused(const std::string& text, const std::string& message) {
  const PlanFile file(text);
  CAPTURE(text);
  CHECK_THROWS_WITH(file.orders({2, 1, 2}), Catch::Contains(message));
}

}  // namespace

TEST_CASE("every schedule can be written down and read back") {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "zb_auto", "dualpipe_v"}) {
    const Schedule s = find_schedule(name);
    const PipeShape p{3, s.chunks == 0 ? 3 : s.chunks, 7};
    const Orders orders = s.orders(p);
    const PlanFile file(to_text(orders, s.placement));
    const Schedule written = find_schedule("custom:" + file.path());
    CHECK(written.placement == s.placement);
    CHECK(written.orders(p) == orders);
    // A step of fewer micro-batches, such as an evaluation.
    const PipeShape fewer{3, p.chunks, 2};
    CHECK_FALSE(find_problem(written.orders(fewer), fewer, written.placement));
  }
}

TEST_CASE("a written order may have comments, empty lines and a placement") {
  const PlanFile file("# two stages\n\nplacement looped\nF0.0 I0.0 W0.0 # the first\n  F0.0\tB0\n");
  const Orders orders = file.orders({2, 1, 1});
  CHECK(orders[0].size() == 3);
  CHECK(orders[1] == std::vector<Action>{{Verb::forward, 0, 0}, {Verb::backward_input, 0, 0, true}});
}

TEST_CASE("what is wrong with a written order is said with line and column") {
  CHECK_NOTHROW(PlanFile(kSound).orders({2, 1, 2}));
  refused("F0 F1 X0 B1\nF0 B0 F1 B1\n", ":1:7: wanted F, B, I or W");
  refused("F0 F1 B0 B1\nF0 B0 F1.x B1\n", ":2:7: wanted F, B, I or W");
  refused("F0 F1 B0 B-1\n", ":1:10: wanted F, B, I or W");
  refused("F0 F1 B0 B40000\n", ":1:10: wanted F, B, I or W");
  refused("F0 F1 B0 F\n", ":1:10: wanted F, B, I or W");
  refused("placement round\n" + kSound, ":1:11: wanted looped or vee");
  refused("placement\n" + kSound, ":1:1: placement of what kind?");
  refused("# nothing\n", "no stage has an action");
  refused("F0 F1 B0 B1\n", "is written for 1 stages of 1 chunks, found pp 2");
  refused("F0 B0\nF0 B0\n", "is written for 1 micro-batches, but a step has 2");
  refused("F0 F1 B0 B1\nF0 B0 F1 B1 F0\n", ":2:13: stage 1: F0.0 comes twice");
  refused("F0 B1 F1 B0\nF0 B0 F1 B1\n", ":1:4: stage 0: B1.0 comes before its forward");
  refused("F0 F1 B0 W1 I1\nF0 B0 F1 B1\n", ":1:10: stage 0: W1.0 comes before its backward_input");
  refused("F0 F1 B0 W0 B1\nF0 B0 F1 B1\n", ":1:10: stage 0: W0.0 comes twice");
  refused("F0 F1 B0 I1\nF0 B0 F1 B1\n", ":1:10: stage 0: micro-batch 1 of chunk 0 has no backward_weight");
  refused("F0 F1 B0\nF0 B0 F1 B1\n", ":1:7: stage 0: micro-batch 1 of chunk 0 has no backward");
  refused("F0 F1 B0 B1\nF1 B1 F0 B0\n", ":2:1: stage 1: needs the activation of micro-batch 1");
  refused("F0 F1 B1 B0\nF0 B0 F1 B1\n", ":1:7: stage 0: needs the gradient of micro-batch 1");
  refused("F0 B0 F1 B1\nF0 F1 B0 B1\n",
          ":1:4: stage 0: the stages wait for each other: stage 0 at B0.0; stage 1 at F1.0");
  CHECK_THROWS_WITH(find_schedule("custom:/nowhere"), Catch::Contains("/nowhere cannot be read"));
  CHECK_THROWS_WITH(find_schedule("zb_h3"), Catch::Contains("there is no schedule `zb_h3`"));
}
