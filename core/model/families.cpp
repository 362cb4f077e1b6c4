#include "core/model/families.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
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

namespace {

// Appends, or lengthens the last piece where the two are neighbours in the tensor and here.
void append_piece(std::vector<Param::Piece>& pieces, Param::Piece piece, int dimension) {
  const size_t d = size_t(dimension);
  if (!pieces.empty()) {
    Param::Piece& last = pieces.back();
    if (last.tensor == piece.tensor && last.from.hi[d] == piece.from.lo[d] && last.to.hi[d] == piece.to.lo[d]) {
      last.from.hi[d] = piece.from.hi[d];
      last.to.hi[d] = piece.to.hi[d];
      return;
    }
  }
  pieces.push_back(std::move(piece));
}

}  // namespace

ParamId ModelBuilder::stack(std::string name, const std::vector<Part>& parts, int dimension, Values values) {
  Param p;
  p.name = std::move(name);
  int64_t at = 0;
  for (const Part& part : parts) {
    Param::Piece piece{.tensor = part.tensor, .logical = {}, .from = {}, .to = {}};
    piece.logical.rank = p.local.rank = int(part.cuts.size());
    for (size_t d = 0; d < part.cuts.size(); ++d) {
      const Cut& cut = part.cuts[d];
      const int64_t lo = int(d) == dimension ? at : 0;
      piece.logical.dims[d] = cut.whole;
      piece.from.lo[d] = cut.begin;
      piece.from.hi[d] = cut.end;
      piece.to.lo[d] = lo;
      piece.to.hi[d] = lo + cut.size();
      p.local.dims[d] = lo + cut.room;
    }
    at = p.local[dimension];
    if (tensors_.insert(part.tensor).second) result_.parameters += piece.logical.elements();
    const bool empty = std::any_of(part.cuts.begin(), part.cuts.end(), [](const Cut& c) { return c.size() == 0; });
    if (!empty) append_piece(p.pieces, std::move(piece), dimension);
  }
  p.init = values.init;
  p.init_std = values.std;
  p.decays = p.local.rank == 2;
  result_.params.push_back(std::move(p));
  return ParamId(result_.params.size() - 1);
}

ParamId ModelBuilder::whole_vector(std::string name, std::string tensor, int64_t size, Init init) {
  const ParamId id = vector(std::move(name), std::move(tensor), uncut(size), init);
  share(id, {.begin = 0, .end = size, .axis = Axis::tp, .partial = spec_.parallel.sequence_parallel});
  return id;
}

void ModelBuilder::share(ParamId id, const Param::Shared& shared) {
  const int ranks = shared.axis == Axis::kv ? mesh_.kv_copies : mesh_.tp;
  if (ranks > 1) result_.params[id].shared.push_back(shared);
}

VocabularySlice ModelBuilder::vocabulary() const {
  const Cut cut = even_cut(model().vocab_size, mesh_.slice, mesh_.tp);
  return {cut.begin, cut.size(), cut.whole};
}

int64_t ModelBuilder::table_rows() const {
  return padded_vocab(even_cut(model().vocab_size, mesh_.slice, mesh_.tp).room);
}

ParamId ModelBuilder::table(std::string name, std::string tensor) {
  Cut rows = even_cut(model().vocab_size, mesh_.slice, mesh_.tp);
  rows.room = table_rows();
  return matrix(std::move(name), std::move(tensor), rows, uncut(model().hidden_size), weights());
}

void ModelBuilder::block(std::unique_ptr<Block> b, int layer) {
  result_.blocks.push_back(std::move(b));
  result_.layer.push_back(layer);
}

}  // namespace trainer
