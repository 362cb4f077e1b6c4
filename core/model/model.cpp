#include "core/model/model.h"

#include "core/base/error.h"
#include "core/model/block_cost.h"
#include "core/model/families.h"

namespace trainer {
namespace {

void check_sizes(const RunSpec& spec, const Mesh& mesh) {
  const ModelSpec& m = spec.model;
  check(mesh.cp == 1, Exit::spec, "parallel.cp: blocks are not divided by cp yet, found {}; set it to 1", mesh.cp);
  for (const auto& [name, value] : {std::pair{"num_layers", m.num_layers},
                                    {"hidden_size", m.hidden_size},
                                    {"num_heads", m.num_heads},
                                    {"num_kv_heads", m.num_kv_heads},
                                    {"head_dim", m.head_dim},
                                    {"ffn_hidden_size", m.ffn_hidden_size},
                                    {"vocab_size", m.vocab_size},
                                    {"max_seq_len", m.max_seq_len}})
    check(value > 0, Exit::spec, "model.{}: must be positive, found {}", name, value);
  check(m.num_heads % m.num_kv_heads == 0, Exit::spec, "model.num_kv_heads: must divide num_heads, found {} of {}",
        m.num_kv_heads, m.num_heads);
  check(mesh.tp <= m.num_heads, Exit::spec,
        "parallel.tp: whole heads are divided, wanted at most model.num_heads ({}), found {}", m.num_heads, mesh.tp);
  check(spec.data.seq_len > 0 && spec.data.seq_len <= m.max_seq_len, Exit::spec,
        "data.seq_len: must be between 1 and model.max_seq_len, found {} and {}", spec.data.seq_len, m.max_seq_len);
}

}  // namespace

Model build_model(const RunSpec& spec, const Mesh& mesh) {
  check_sizes(spec, mesh);
  ModelBuilder builder(spec, mesh);
  traits_of(spec.model.family).build(builder);
  Model model = builder.take();
  const int64_t wanted = parameter_count(spec.model), built = parameter_count(model);
  check(wanted == built, Exit::spec, "model: the spec has {} parameters, the built model {}", wanted, built);
  if (spec.parallel.pp > 1)
    for (const BlockCost& c : block_costs(spec, model))
      model.flops.push_back(c.forward.flops + c.backward_input.flops + c.backward_weight.flops);
  return model;
}

RecomputeLevel recompute_level(const RecomputeSpec& spec, int layer) {
  switch (spec.kind) {
    case RecomputeKind::none: return RecomputeLevel::none;
    case RecomputeKind::selective: return RecomputeLevel::selective;
    case RecomputeKind::full: return RecomputeLevel::full;
    case RecomputeKind::every: return layer % spec.every == 0 ? RecomputeLevel::full : RecomputeLevel::none;
  }
  return RecomputeLevel::none;
}

}  // namespace trainer
