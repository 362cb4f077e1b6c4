#include "core/model/families.h"

#include <cmath>

#include "core/model/blocks/head.h"

namespace trainer {

const FamilyTraits& traits_of(Family family) {
  static constexpr FamilyTraits kFamilies[] = {
      {.family = Family::gpt2,
       .build = build_gpt2,
       .ffn_matrices = 2,
       .learned_positions = true,
       .layer_norm = true,
       .linear_biases = true},
      {.family = Family::llama,
       .build = build_llama,
       .ffn_matrices = 3,
       .learned_positions = false,
       .layer_norm = false,
       .linear_biases = false},
  };
  for (const FamilyTraits& t : kFamilies)
    if (t.family == family) return t;
  fail(Exit::spec, "model.family: number {} is in no table of families", int(family));
}

ModelBuilder::Values ModelBuilder::residual_weights() const {
  return {Init::normal, float(model().init_std / std::sqrt(2.0 * double(model().num_layers)))};
}

ParamId ModelBuilder::stack(std::string name, const std::vector<Part>& parts, int64_t columns, Values values) {
  const auto shape_of = [&](int64_t rows) { return columns ? Shape{rows, columns} : Shape{rows}; };
  Param p;
  p.name = std::move(name);
  int64_t row = 0;
  for (const Part& part : parts) {
    const Box from = whole_box(shape_of(part.rows));
    Box to = from;
    to.lo[0] += row;
    to.hi[0] += row;
    p.pieces.push_back({part.tensor, shape_of(part.rows), from, to});
    row += part.rows;
  }
  p.local = shape_of(row);
  p.init = values.init;
  p.init_std = values.std;
  p.decays = columns > 0;
  result_.params.push_back(std::move(p));
  return ParamId(result_.params.size() - 1);
}

ParamId ModelBuilder::table(std::string name, std::string tensor) {
  const ParamId id = matrix(std::move(name), std::move(tensor), model().vocab_size, model().hidden_size, weights());
  result_.params[id].local.dims[0] = padded_vocab(model().vocab_size);
  return id;
}

void ModelBuilder::block(std::unique_ptr<Block> b, int layer) {
  result_.blocks.push_back(std::move(b));
  result_.layer.push_back(layer);
}

}  // namespace trainer
