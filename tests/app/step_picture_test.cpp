#include "app/step_picture.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "core/base/error.h"

using namespace trainer;

namespace {

std::string named(const std::string& what, int rank, int lane, const std::string& name) {
  return R"({"name":")" + what + R"(","ph":"M","pid":)" + std::to_string(rank) + R"(,"tid":)" + std::to_string(lane) +
         R"(,"args":{"name":")" + name + R"("}},)";
}
std::string call(const std::string& name, int rank, int lane, int begin, int length) {
  return R"({"name":")" + name + R"(","cat":")" + name.substr(0, name.find(' ')) + R"(","ph":"X","pid":)" +
         std::to_string(rank) + R"(,"tid":)" + std::to_string(lane) + R"(,"ts":)" + std::to_string(begin) +
         R"(,"dur":)" + std::to_string(length) + "},";
}
// Two stages pass one micro-batch through two blocks each; times in microseconds, `slow` times longer.
std::string trace(int slow, const std::string& more = "") {
  std::string events;
  for (int rank = 0; rank < 2; ++rank) {
    events += named("process_name", rank, 0, "rank " + std::to_string(rank) + ", stage " + std::to_string(rank));
    events += named("thread_name", rank, 0, "compute") + named("thread_name", rank, 6, "recv_act");
    events += R"({"name":"live bytes","ph":"C","pid":0,"ts":0,"args":{"bytes":7}},)";
    for (int b = 0; b < 2; ++b)
      events +=
          call("forward 12 block " + std::to_string(2 * rank + b), rank, 0, slow * (20 * rank + 10 * b), 10 * slow);
  }
  events += call("recv_act 12 block 2", 1, 6, slow * 5, slow * 15) + more;
  events.pop_back();
  return "{\"traceEvents\":[" + events + "]}";
}
std::string draw(const std::string& planned, const std::string& ran) {
  std::ostringstream out;
  draw_step(out, {.planned = planned, .machine = "h100", .ran = ran, .path_of_run = "run/trace.json"});
  return out.str();
}
int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}
std::string refusal(const std::string& ran) {
  try {
    draw(trace(1), ran);
  } catch (const Error& e) {
    REQUIRE(e.code() == Exit::usage);
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a step on the clock stands above the same step in a run, each as wide as its own makespan") {
  const std::string svg = draw(trace(1), trace(1000));
  REQUIRE(svg.ends_with("</svg>\n"));
  CHECK(count(svg, ">on the clock of h100: 40 us<") == 1);
  CHECK(count(svg, ">in a run: 40 ms<") == 1);
  CHECK(count(svg, ">5 us<") == 1);
  CHECK(count(svg, ">5 ms<") == 1);
  CHECK(count(svg, ">rank 1, stage 1<") == 2);
  CHECK(count(svg, ">recv_act<") == 4);
  // A quarter of the 900 pixels for each forward, one number for both of a stage; the message is lower.
  CHECK(count(svg, "M0.0 16h225.0v18h-225.0zM225.0 16h225.0v18h-225.0zM450.0 46h225.0v18") == 1);
  CHECK(count(svg, "h225.0v18") == 8);
  CHECK(count(svg, "h337.5v6") == 2);
  CHECK(count(svg, ">12<") == 4);
  CHECK(count(svg, ">forward<") == 1);
  CHECK(count(svg, ">collective<") == 0);
}

TEST_CASE("ranks that the clock does not have are left out") {
  const std::string replica = named("process_name", 2, 0, "rank 2, stage 0") + named("thread_name", 2, 0, "compute") +
                              call("forward 0", 2, 0, 0, 99);
  REQUIRE(draw(trace(1), trace(1, replica)) == draw(trace(1), trace(1)));
}

TEST_CASE("what is not a run of the plan is refused in a sentence") {
  CHECK_THAT(refusal("PK\x03\x04"), Catch::StartsWith("run/trace.json: "));
  CHECK_THAT(refusal("[1, 2]"), Catch::StartsWith("run/trace.json: wanted a trace as log.trace writes it: "));
  CHECK_THAT(refusal(R"({"traceEvents":[{"name":"x","ph":"X","pid":0,"tid":0,"ts":"now","dur":1,"cat":"x"}]})"),
             Catch::StartsWith("run/trace.json: wanted a trace"));
  CHECK(refusal(R"({"traceEvents":[]})") ==
        "run/trace.json: not a run of this plan: wanted the tracks `rank 0, stage 0: compute recv_act`, found `none:`");
  CHECK(refusal(trace(1, named("thread_name", 1, 7, "send_grad"))) ==
        "run/trace.json: not a run of this plan: wanted the tracks `rank 1, stage 1: compute recv_act`, found `rank 1, "
        "stage 1: compute recv_act send_grad`");
  CHECK(refusal(trace(1, call("forward 13 block 2", 1, 0, 50, 5))) ==
        "run/trace.json: not a run of this plan: pass 3 of rank 1, stage 1: wanted `none`, found `forward 13 block 2`");
  std::string other = trace(1);
  other.replace(other.find("block 1"), 7, "block 3");
  CHECK(refusal(other) ==
        "run/trace.json: not a run of this plan: pass 2 of rank 0, stage 0: wanted `forward 12 block 1`, found "
        "`forward 12 block 3`");
  CHECK(refusal(trace(0)) == "run/trace.json: a step that takes no time");
}
