// The one table of model families: what each is made of, and who builds it. A new family is a file with a `build_`
// function and a line in families.cpp.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "core/model/cut.h"
#include "core/model/model.h"
#include "core/ops/vocabulary.h"

namespace trainer {

// Collects the parameters and blocks of a model. Names given here are the local buffers'; tensors have Hugging Face's
// names.
class ModelBuilder {
 public:
  ModelBuilder(const RunSpec& spec, const Mesh& mesh) : spec_(spec), mesh_(mesh) {}
  const RunSpec& spec() const { return spec_; }
  const ModelSpec& model() const { return spec_.model; }
  const Mesh& mesh() const { return mesh_; }

  struct Values {
    Init init = Init::normal;
    float std = 0;
  };
  Values weights() const { return {Init::normal, float(spec_.model.init_std)}; }
  // Of the two projections that write to the residual stream: scaled by 1 / sqrt(2 L) (Radford et al. 2019,
  // section 2.3).
  Values residual_weights() const;

  // A tensor as this rank has it: how each of its dimensions is cut.
  struct Part {
    std::string tensor;
    std::vector<Cut> cuts;
  };
  // Tensors side by side along `dimension`. Matrices decay, vectors do not.
  ParamId stack(std::string name, const std::vector<Part>& parts, int dimension, Values);
  ParamId matrix(std::string name, std::string tensor, const Cut& rows, const Cut& columns, Values v) {
    return stack(std::move(name), {{std::move(tensor), {rows, columns}}}, 0, v);
  }
  ParamId vector(std::string name, std::string tensor, const Cut& size, Init init) {
    return stack(std::move(name), {{std::move(tensor), {size}}}, 0, {init});
  }
  // Every rank of tp has all of it. Its gradient is a sum over the rows of the stream, of which sequence parallelism
  // leaves a rank its part.
  ParamId whole_vector(std::string name, std::string tensor, int64_t size, Init init);
  // A slice of the vocabulary, padded to padded_vocab with zeros that belong to no tensor.
  ParamId table(std::string name, std::string tensor);
  VocabularySlice vocabulary() const;
  int64_t table_rows() const;
  // Elements [begin, end) of a parameter are alike on the ranks of `axis`.
  void share(ParamId, const Param::Shared&);

  void block(std::unique_ptr<Block>, int layer);
  Model take() { return std::move(result_); }

 private:
  const RunSpec& spec_;
  const Mesh& mesh_;
  Model result_;
  std::set<std::string> tensors_;
};

struct FamilyTraits {
  Family family;
  void (*build)(ModelBuilder&);
  int64_t ffn_matrices;    // [C, F] each: 2, or 3 with a gate
  bool learned_positions;  // a table [max_seq_len, C]
  bool layer_norm;         // norms with a bias
  bool linear_biases;      // on every linear layer but q, k and v, whose biases model.qkv_bias decides
};
const FamilyTraits& traits_of(Family);

void build_gpt2(ModelBuilder&);
void build_llama(ModelBuilder&);

}  // namespace trainer
