// Parameters, FLOPs, initial values and names, from specs of published models.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/mesh.h"
#include "tests/model/specs.h"

using namespace trainer;
using namespace trainer::test;

namespace {

struct Sizes {
  int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq_len;
};
RunSpec spec_of(Family family, const Sizes& s) {
  RunSpec r;
  ModelSpec& m = r.model;
  m.family = family;
  m.num_layers = s.layers;
  m.hidden_size = s.hidden;
  m.num_heads = s.heads;
  m.num_kv_heads = s.kv_heads;
  m.head_dim = s.head_dim;
  m.ffn_hidden_size = s.ffn;
  m.vocab_size = s.vocab;
  m.max_seq_len = r.data.seq_len = s.seq_len;
  m.tie_embeddings = m.qkv_bias = family == Family::gpt2;
  return r;
}
RunSpec with_qk_norm(RunSpec spec) {
  spec.model.qk_norm = true;
  return spec;
}

const RunSpec kGpt2 = spec_of(Family::gpt2, {12, 768, 12, 12, 64, 3072, 50257, 1024});
const RunSpec kLlama3_8b = spec_of(Family::llama, {32, 4096, 32, 8, 128, 14336, 128256, 8192});
const RunSpec kLlama3_70b = spec_of(Family::llama, {80, 8192, 64, 8, 128, 28672, 128256, 8192});
const RunSpec kLlama3_405b = spec_of(Family::llama, {126, 16384, 128, 8, 128, 53248, 128256, 8192});

}  // namespace

TEST_CASE("parameter counts are the published ones, by formula and as built") {
  const std::pair<RunSpec, int64_t> published[] = {
      {kGpt2, 124'439'808},
      {spec_of(Family::gpt2, {48, 1600, 25, 25, 64, 6400, 50257, 1024}), 1'557'611'200},
      {spec_of(Family::llama, {32, 4096, 32, 32, 128, 11008, 32000, 4096}), 6'738'415'616},
      {kLlama3_8b, 8'030'261'248},
      {kLlama3_70b, 70'553'706'496},
      {kLlama3_405b, 405'853'388'800},
      {with_qk_norm(spec_of(Family::llama, {36, 4096, 32, 8, 128, 12288, 151936, 40960})), 8'190'735'360},
      {with_qk_norm(spec_of(Family::llama, {64, 5120, 64, 8, 128, 25600, 151936, 40960})), 32'762'123'264},
      {spec_of(Family::llama, {32, 4096, 32, 8, 128, 14336, 32000, 8192}), 7'241'732'096},
  };
  for (const auto& [spec, count] : published) {
    CHECK(parameter_count(spec.model) == count);
    CHECK(parameter_count(build_model(spec, Mesh{})) == count);
  }
}

TEST_CASE("counts of every variant agree with the built model, tied tensors counted once") {
  for (const NamedSpec& v : all_variants()) {
    INFO(v.name);
    CHECK(parameter_count(build_model(v.spec, Mesh{})) == parameter_count(v.spec.model));
  }
}

TEST_CASE("FLOPs per token under the three conventions") {
  // GFLOP per token at 8,192: figures that follow from the matrix shapes (Narayanan et al. 2021, eq. 3, with grouped
  // heads and SwiGLU).
  const std::tuple<RunSpec, double, double> wanted[] = {
      {kLlama3_8b, 57.91, 51.47}, {kLlama3_70b, 481.43, 449.23}, {kLlama3_405b, 2625.42, 2523.97}};
  for (const auto& [spec, full, causal] : wanted) {
    const FlopsPerToken f = flops_per_token(spec.model, 8192);
    CHECK(f.exact_full * 1e-9 == Approx(full).epsilon(2e-4));
    CHECK(f.exact_causal * 1e-9 == Approx(causal).epsilon(2e-4));
  }
  const FlopsPerToken gpt2 = flops_per_token(kGpt2.model, 1024);
  CHECK(gpt2.simple == 6.0 * (124'439'808 - 1024 * 768) + 12.0 * 12 * 768 * 1024);
  ModelSpec windowed = kLlama3_8b.model;
  windowed.sliding_window = 1;  // each query sees itself
  const FlopsPerToken f = flops_per_token(windowed, 8192);
  CHECK(f.exact_full - f.exact_causal == 12.0 * 32 * 4096 * 8191);
}

TEST_CASE("pieces cover their parameter without overlap, and each tensor whole") {
  for (const NamedSpec& v : all_variants()) {
    const Model model = build_model(v.spec, Mesh{});
    std::set<std::string> names, tensors;
    for (const Param& p : model.params) {
      CHECK(names.insert(p.name).second);
      int64_t covered = 0;
      for (const Param::Piece& piece : p.pieces) {
        CHECK(tensors.insert(piece.tensor).second);
        CHECK(piece.from == whole_box(piece.logical));
        CHECK(piece.to.lo[0] * p.local.elements() / p.local[0] == covered);
        covered += piece.logical.elements();
      }
      CHECK(covered <= p.local.elements());
      CHECK(p.decays == (p.local.rank == 2));
    }
  }
}

TEST_CASE("initial values depend on seed, tensor and index, not on where the tensor lies") {
  RunSpec spec = tiny_spec(Family::llama);
  const Model fused = build_model(spec, Mesh{});
  const Param& qkv = *std::find_if(fused.params.begin(), fused.params.end(),
                                   [](const Param& p) { return p.name == "layers.0.attention.qkv.weight"; });
  const int64_t q = qkv.pieces[0].logical.elements();
  Param k_alone = qkv;
  k_alone.local = qkv.pieces[1].logical;
  k_alone.pieces = {{qkv.pieces[1].tensor, k_alone.local, whole_box(k_alone.local), whole_box(k_alone.local)}};
  for (int64_t i = 0; i < k_alone.local.elements(); ++i)
    REQUIRE(initial_value(7, qkv, q + i) == initial_value(7, k_alone, i));
  CHECK(initial_value(7, qkv, 0) != initial_value(8, qkv, 0));
  CHECK(initial_value(7, qkv, 0) != initial_value(7, qkv, q));

  std::vector<float> bulk(size_t(qkv.local.elements() - 3));
  initial_values(7, qkv, 3, bulk);
  for (size_t i = 0; i < bulk.size(); ++i) REQUIRE(bulk[i] == initial_value(7, qkv, int64_t(i) + 3));
}

TEST_CASE("initial values have their standard deviation; padding is zero, norms are one, biases zero") {
  const Model model = build_model(kGpt2, Mesh{});
  const auto moments = [&](const Param& p) {
    std::vector<float> x(200'000);
    initial_values(1, p, 0, x);
    double sum = 0, squares = 0;
    for (float v : x) sum += double(v), squares += double(v) * double(v);
    return std::pair{sum / double(x.size()), std::sqrt(squares / double(x.size()))};
  };
  for (const Param& p : model.params) {
    if (p.local.elements() < 200'000) {
      CHECK(initial_value(1, p, 5) == (p.init == Init::ones ? 1.0f : 0.0f));
      continue;
    }
    const bool residual = p.name.ends_with("out.weight") || p.name.ends_with("down.weight");
    const double std = residual ? 0.02 / std::sqrt(24.0) : 0.02;
    const auto [mean, deviation] = moments(p);
    INFO(p.name);
    CHECK(std::abs(mean) < 5 * std / std::sqrt(200'000.0));
    CHECK(deviation == Approx(std).epsilon(0.01));
  }
  CHECK(model.params[0].local == Shape{50304, 768});
  CHECK(initial_value(1, model.params[0], 50256 * 768 + 1) != 0);
  CHECK(initial_value(1, model.params[0], 50257 * 768) == 0);
}

TEST_CASE("a spec that no block can be built from is refused, and says why") {
  RunSpec spec = tiny_spec(Family::gpt2);
  spec.model.num_kv_heads = 1;
  CHECK_THROWS_WITH(build_model(spec, Mesh{}), Catch::Contains("num_kv_heads"));
  spec = tiny_spec(Family::llama);
  spec.data.seq_len = 17;
  CHECK_THROWS_WITH(build_model(spec, Mesh{}), Catch::Contains("max_seq_len"));
  spec = tiny_spec(Family::llama);
  spec.model.ffn_hidden_size = 0;
  CHECK_THROWS_WITH(build_model(spec, Mesh{}), Catch::Contains("ffn_hidden_size"));
}

TEST_CASE("recompute levels by layer") {
  CHECK(recompute_level({RecomputeKind::none, 1}, 0) == RecomputeLevel::none);
  CHECK(recompute_level({RecomputeKind::selective, 1}, 3) == RecomputeLevel::selective);
  CHECK(recompute_level({RecomputeKind::full, 1}, 3) == RecomputeLevel::full);
  CHECK(recompute_level({RecomputeKind::every, 3}, 6) == RecomputeLevel::full);
  CHECK(recompute_level({RecomputeKind::every, 3}, 7) == RecomputeLevel::none);
}
