// What one more layer costs in launches: kernels and products of cuBLASLt of a step and of an evaluation, whose list is
// in docs/gpu.md.
#include <catch2/catch.hpp>

#include "tests/cuda/gpu_run.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/support/ranks.h"

using namespace trainer;
using namespace trainer::test;

namespace {

struct Launches {
  uint64_t kernels = 0, products = 0;
  uint64_t others = 0;  // records of events, waits, copies, memsets
};
Launches operator-(const Launches& a, const Launches& b) {
  return {a.kernels - b.kernels, a.products - b.products, a.others - b.others};
}
Launches so_far() {
  const fake::Counters& c = fake::counters;
  return {c.kernels, c.gemms, c.ops - c.kernels - c.gemms};
}

struct Counted {
  Launches step, evaluation;
};

// Of one micro-batch with so many rows that sums over them are taken in pieces, as those of real models are.
Counted count(Family family, int layers) {
  Layout layout{.family = family, .layers = layers, .compute = Precision::bf16};
  layout.ffn = layout.head_dim = 64;
  RunSpec spec = spec_with(layout, false);
  spec.model.num_heads = 2;
  spec.model.num_kv_heads = family == Family::gpt2 ? 2 : 1;
  spec.model.hidden_size = 128;
  spec.model.max_seq_len = spec.data.seq_len = 128;
  SoloExchange alone;
  GpuRun run(spec, alone);
  const auto counted = [&](auto run_plan) {
    run.rig.device->drain();
    const Launches before = so_far();
    run_plan();
    run.rig.device->drain();
    return so_far() - before;
  };
  return {counted([&] { run.train(); }), counted([&] { run.evaluate(0); })};
}

void require_layer(Family family, const Launches& step, const Launches& evaluation) {
  const Counted two = count(family, 2), three = count(family, 3);
  const Launches of_step = three.step - two.step, of_evaluation = three.evaluation - two.evaluation;
  CHECK(of_step.kernels == step.kernels);
  CHECK(of_step.products == step.products);
  CHECK(of_step.others == step.others);
  CHECK(of_evaluation.kernels == evaluation.kernels);
  CHECK(of_evaluation.products == evaluation.products);
  CHECK(of_evaluation.others == evaluation.others);
}

}  // namespace

// The others: an event says that the layer's gradients are there, and the lane of reductions waits for it.
TEST_CASE("launches of a layer of GPT-2") {
  require_layer(Family::gpt2, {.kernels = 27, .products = 12, .others = 2}, {.kernels = 4, .products = 4});
}

TEST_CASE("launches of a layer of Llama") {
  require_layer(Family::llama, {.kernels = 19, .products = 12, .others = 2}, {.kernels = 5, .products = 4});
}
