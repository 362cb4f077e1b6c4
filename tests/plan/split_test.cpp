// How layers are cut over the positions of a pipeline.
#include <catch2/catch.hpp>

#include "core/plan/split.h"
#include "tests/plan/worlds.h"

using namespace trainer;
using namespace trainer::test;

namespace {

std::vector<int> split_of(const RunSpec& spec, int positions) {
  return split_layers(spec, build_model(spec, Mesh::of(spec, int(spec.parallel.pp), 0)), positions);
}

}  // namespace

TEST_CASE("layers alike; even a head of two words tips the last position") {
  RunSpec spec = spec_of(WorldShape{.pp = 4, .layers = 10});
  spec.model.vocab_size = 2;
  CHECK(split_of(spec, 4) == std::vector{2, 3, 3, 2});
  CHECK(split_of(spec, 1) == std::vector{10});
  CHECK(split_of(spec, 10) == std::vector<int>(10, 1));
}

TEST_CASE("a large head takes layers away from the last position") {
  RunSpec spec = spec_of(WorldShape{.pp = 2, .layers = 12});
  spec.model.vocab_size = 8000;  // costs more than all twelve layers
  CHECK(split_of(spec, 2) == std::vector{11, 1});
  spec.model.vocab_size = 1000;
  const std::vector<int> split = split_of(spec, 2);
  CHECK(split[0] > split[1]);
  CHECK(split[0] + split[1] == 12);
}

TEST_CASE("no other cut has a cheaper dearest position") {
  for (int64_t vocab : {16, 200, 600, 1500})
    for (int positions : {2, 3, 4}) {
      RunSpec spec = spec_of(WorldShape{.pp = positions, .layers = 9});
      spec.model.vocab_size = vocab;
      const Model model = build_model(spec, Mesh::of(spec, positions, 0));
      const auto dearest = [&](const std::vector<int>& layers) {
        double most = 0, cost = 0;
        int position = 0, end = layers[0];
        for (size_t b = 0; b < model.blocks.size(); ++b) {
          if (model.layer[b] >= end && model.layer[b] < 9) {
            end += layers[size_t(++position)];
            cost = 0;
          }
          most = std::max(most, cost += model.flops[b]);
        }
        return most;
      };
      const double found = dearest(split_layers(spec, model, positions));
      for (int a = 1; a <= 8; ++a)
        for (int b = 1; b <= 9 - a; ++b)
          for (int c = 0; c <= 9 - a - b; ++c) {
            std::vector<int> other{a, b, c, 9 - a - b - c};
            other.erase(std::remove(other.begin(), other.end(), 0), other.end());
            if (int(other.size()) == positions) CHECK(found <= dearest(other) * (1 + 1e-12));
          }
    }
}

TEST_CASE("a given split is taken as it is, and refused where it does not fit") {
  RunSpec spec = spec_of(WorldShape{.pp = 3, .layers = 6});
  spec.parallel.pipeline.split = {1, 4, 1};
  CHECK(split_of(spec, 3) == std::vector{1, 4, 1});
  spec.parallel.pipeline.split = {1, 4};
  CHECK_THROWS_WITH(split_of(spec, 3), Catch::Contains("parallel.pipeline.split"));
  spec.parallel.pipeline.split = {1, 4, 2};
  CHECK_THROWS_WITH(split_of(spec, 3), Catch::Contains("of 6 in all"));
}
