// What `trainer ckpt diff` says of two steps.
#include <catch2/catch.hpp>

#include "app/ckpt_diff.h"
#include "io/save.h"
#include "tests/checkpoint/state.h"

using namespace trainer;

namespace {

// Twelve layers of one vector each.
std::vector<Param> layers() {
  std::vector<Param> params;
  for (int l = 0; l < 12; ++l) {
    const std::string name = fmt::format("layers.{}.norm.weight", l);
    params.push_back(make_param(name, {2, 3}, {whole_piece(name, {2, 3})}));
  }
  return params;
}

struct Saved {
  explicit Saved(int cuts) : state(layers(), {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}, /*with_master=*/true, cuts) {
    state.fill(1);
  }
  float& value(const std::string& tensor, int64_t index) {
    for (const NamedBox& b : boxes_of(state.view()))
      if (b.tensor == tensor) return *(data_as<float>(b.values) + index);
    FAIL(tensor);
    return *data_as<float>(boxes_of(state.view())[0].values);
  }
  Checkpoint checkpoint(int64_t step) {
    return open_checkpoint(Saver({directory.path, {}, 1, 2}).save(state.view(), run_at(step)).path);
  }
  State state;
  TemporaryDirectory directory;
};

}  // namespace

TEST_CASE("equal states are equal whatever parts they were saved in, and whatever the step") {
  Saved a(1), b(5);
  CHECK(differences(a.checkpoint(1), b.checkpoint(2)).empty());
}

TEST_CASE("the first tensor that differs is the model's first, and its element is named") {
  Saved a(1), b(1);
  b.value("optimizer.moment1.layers.0.norm.weight", 0) += 1;
  b.value("layers.10.norm.weight", 0) += 1;
  a.value("layers.2.norm.weight", 4) = 3;
  b.value("layers.2.norm.weight", 4) = 3.5f;
  const auto found = differences(a.checkpoint(1), b.checkpoint(1));
  REQUIRE(found.size() == 3);
  CHECK(found[0] == "layers.2.norm.weight: 1 of 6 values differ, by at most 0.5; the first at [1, 1]: 3 and 3.5");
  CHECK(found[1] == "layers.10.norm.weight: values differ");
  CHECK(found[2] == "optimizer.moment1.layers.0.norm.weight: values differ");
}

TEST_CASE("a tensor that one of them lacks is named with the one that has it") {
  Saved a(1);
  const Checkpoint whole = a.checkpoint(1);
  Checkpoint part = whole;
  part.path = "part";
  part.manifest.tensors.erase(part.manifest.tensors.begin());
  part.manifest.state_hash = 0;
  const auto found = differences(part, whole);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0], Catch::Contains("only in " + whole.path));
}
