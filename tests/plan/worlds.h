// Small worlds for the tests of plans: specs, their models and programs.
#pragma once
#include <string>

#include "parallel/planner.h"
#include "parallel/simulate.h"

namespace trainer::test {

struct WorldShape {
  PipelineKind schedule = PipelineKind::one_f_one_b;
  int pp = 1, dp = 1, chunks = 1, zero = 0, layers = 2, microbatches = 2;
  RecomputeKind recompute = RecomputeKind::none;
  Family family = Family::llama;
  bool tied = true;
  Precision compute = Precision::bf16, gradients = Precision::fp32, reduce = Precision::fp32;
};

inline RunSpec spec_of(const WorldShape& w) {
  RunSpec s;
  ModelSpec& m = s.model;
  m.family = w.family;
  m.num_layers = w.layers;
  m.hidden_size = 32;
  m.num_heads = m.num_kv_heads = 4;
  m.head_dim = 8;
  m.ffn_hidden_size = 64;
  m.vocab_size = 96;
  m.max_seq_len = s.data.seq_len = 16;
  m.tie_embeddings = w.tied;
  m.qkv_bias = w.family == Family::gpt2;
  s.train.micro_batch = 2;
  s.precision.compute = w.compute;
  s.precision.gradients = w.gradients;
  s.precision.reduce = w.reduce;
  s.parallel.pp = w.pp;
  s.parallel.zero = w.zero;
  s.parallel.pipeline.schedule = w.schedule;
  s.parallel.pipeline.virtual_stages = w.chunks;
  s.memory.recompute.kind = w.recompute;
  s.memory.recompute.every = 2;
  return s;
}

struct Case {
  RunSpec spec;
  Model model;
  int world;
  std::vector<PlanKey> keys;
  explicit Case(const WorldShape& w, std::vector<StepKind> kinds = {StepKind::train, StepKind::evaluate})
      : spec(spec_of(w)), model(build_model(spec, Mesh::of(spec, w.pp * w.dp, 0))), world(w.pp * w.dp) {
    for (StepKind k : kinds) keys.push_back({k, w.microbatches, spec.data.seq_len});
  }
  PlanRequest request() const { return {spec, model, world, keys}; }
};

}  // namespace trainer::test
