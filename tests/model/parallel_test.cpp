// Tensor and sequence parallelism: a model cut over ranks is the model of one rank.
#include <cmath>

#include "tests/model/run_ranks.h"
#include "tests/model/specs.h"
#include "tests/support/gradient_check.h"

using namespace trainer;
using namespace trainer::test;

namespace {

double largest(const Values& v) {
  double most = 0;
  for (double x : v) most = std::max(most, std::abs(x));
  return most;
}
double norm_of(const Values& v) { return std::sqrt(dot(v, v)); }
// 1e-5 of the tensor's largest element.
void require_alike(const Values& actual, const Values& wanted) {
  require_close(actual, wanted, {1e-5, 1e-5 * largest(wanted)});
}

// Nothing divides: vocabulary 97, feed-forward 19, 14 rows; and of 5 rows, the last of four ranks has none.
std::vector<NamedSpec> odd_variants() {
  std::vector<NamedSpec> list;
  const auto add = [&](std::string name, Family family, auto&& change) {
    RunSpec s = tiny_spec(family);
    s.model.vocab_size = 97;
    s.model.ffn_hidden_size = 19;
    s.model.hidden_size = 16;
    s.model.num_heads = s.model.num_kv_heads = 4;
    s.model.head_dim = 4;
    s.data.seq_len = 7;
    change(s);
    list.push_back({std::move(name), s});
  };
  const auto grouped = [](RunSpec& s, int64_t heads, int64_t kv_heads) {
    s.model.num_heads = heads;
    s.model.num_kv_heads = kv_heads;
    s.model.head_dim = 6;
  };
  add("gpt2", Family::gpt2, [](RunSpec&) {});
  add("gpt2, five heads, untied, dropout, documents", Family::gpt2, [](RunSpec& s) {
    s.model.hidden_size = 20;
    s.model.num_heads = s.model.num_kv_heads = 5;
    s.model.tie_embeddings = false;
    s.model.dropout = 0.2;
    s.data.packing = Packing::document;
    s.train.micro_batch = 1;
    s.data.seq_len = 5;
  });
  add("llama, K = 1 of 5, dropout", Family::llama, [&](RunSpec& s) {
    grouped(s, 5, 1);
    s.model.dropout = 0.1;
  });
  add("llama, K = 2 of 4, tied, biases, QK-norm", Family::llama, [&](RunSpec& s) {
    grouped(s, 4, 2);
    s.model.tie_embeddings = s.model.qkv_bias = s.model.qk_norm = true;
  });
  add("llama, K = 3 of 6, window, biases", Family::llama, [&](RunSpec& s) {
    grouped(s, 6, 3);
    s.model.qkv_bias = true;
    s.model.sliding_window = 3;
  });
  add("llama, K = 1 of 4, QK-norm, documents", Family::llama, [&](RunSpec& s) {
    grouped(s, 4, 1);
    s.model.qk_norm = true;
    s.data.packing = Packing::document;
  });
  return list;
}

struct Layout {
  int tp;
  bool sequence_parallel;
};
const std::vector<Layout> kLayouts{{2, false}, {3, false}, {4, false}, {2, true}, {3, true}, {4, true}};

// f(whole model, the same cut over ranks), with the name of the case in Catch's messages.
template <class F>
void for_each_case(F&& f) {
  for (const NamedSpec& variant : odd_variants())
    for (const Layout& layout : kLayouts) {
      INFO(variant.name << ", tp " << layout.tp << (layout.sequence_parallel ? ", sequence parallel" : ""));
      RunRanks one(variant.spec, 1, false), many(variant.spec, layout.tp, layout.sequence_parallel);
      for (int r = 0; r < many.size(); ++r) many.rank(r).control.seed = 11;
      one.rank(0).control.seed = 11;
      f(variant.spec, one, many);
    }
}

void require_alike(const Tensors& actual, const Tensors& wanted) {
  REQUIRE(actual.size() == wanted.size());
  for (const auto& [tensor, values] : wanted) {
    INFO(tensor);
    require_alike(actual.at(tensor), values);
  }
}

}  // namespace

TEST_CASE("initial values of every layout are the same tensors, bit for bit") {
  for_each_case([](const RunSpec&, RunRanks& one, RunRanks& many) { REQUIRE(many.parameters() == one.parameters()); });
}

TEST_CASE("loss and gradients of a model cut over ranks are those of one rank, whatever is recomputed") {
  for_each_case([](const RunSpec& spec, RunRanks& one, RunRanks& many) {
    const Sample sample = random_sample(spec, 1);
    const Outcome wanted = one.train(sample);
    const Tensors gradients = one.gradients();
    const Values stream_grad = one.stream_grad();
    Tensors first;
    for (const RecomputeLevel level : {RecomputeLevel::none, RecomputeLevel::selective, RecomputeLevel::full}) {
      const Outcome outcome = many.train(sample, level);
      INFO("level " << int(level));
      REQUIRE(outcome.loss_sum == Approx(wanted.loss_sum).epsilon(1e-5));
      REQUIRE(outcome.tokens == wanted.tokens);
      require_alike(many.gradients(), gradients);
      require_alike(many.stream_grad(), stream_grad);
      REQUIRE(many.nonzero_padding() == 0);
      if (level == RecomputeLevel::none) first = many.gradients();
      REQUIRE(many.gradients() == first);
    }
    REQUIRE(many.evaluate(sample).loss_sum == Approx(one.evaluate(sample).loss_sum).epsilon(1e-5));
  });
}

TEST_CASE("gradients of two micro-batches add up on every rank") {
  for_each_case([](const RunSpec& spec, RunRanks& one, RunRanks& many) {
    for (uint32_t micro = 0; micro < 2; ++micro) {
      one.train(random_sample(spec, micro), RecomputeLevel::none, micro > 0);
      many.train(random_sample(spec, micro), RecomputeLevel::none, micro > 0);
    }
    require_alike(many.gradients(), one.gradients());
    REQUIRE(many.nonzero_padding() == 0);
  });
}

TEST_CASE("in bf16 a cut model has the loss and the gradients of one rank but for rounding") {
  for (const NamedSpec& variant : odd_variants())
    for (const Layout& layout : {Layout{3, false}, Layout{2, true}}) {
      INFO(variant.name << ", tp " << layout.tp);
      RunSpec spec = variant.spec;
      spec.precision.compute = Precision::bf16;
      RunRanks one(spec, 1, false), many(spec, layout.tp, layout.sequence_parallel);
      const Sample sample = random_sample(spec, 2);
      REQUIRE(many.train(sample).loss_sum == Approx(one.train(sample).loss_sum).epsilon(5e-3));
      const Tensors actual = many.gradients();
      for (const auto& [tensor, wanted] : one.gradients()) {
        Values difference = actual.at(tensor);
        for (size_t i = 0; i < wanted.size(); ++i) difference[i] -= wanted[i];
        INFO(tensor);
        CHECK(norm_of(difference) <= 0.05 * norm_of(wanted) + 0.02);
      }
    }
}

TEST_CASE("more ranks than heads are refused") {
  RunSpec spec = tiny_spec(Family::llama);
  spec.parallel.tp = 4;
  REQUIRE_THROWS_WITH(build_model(spec, Mesh::of(spec, 4, 0)), Catch::Contains("num_heads (3), found 4"));
}
