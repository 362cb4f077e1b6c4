// A small state with everything that is awkward: a fused QKV of odd sizes, a padded vocabulary, vectors, several
// buckets.
#pragma once
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash.h"
#include "core/base/philox.h"
#include "io/boxes.h"
#include "io/convert.h"
#include "io/failpoints.h"
#include "io/manifest.h"

namespace trainer {

struct Failpoints {  // asked for while it lives
  explicit Failpoints(std::string_view text) { set_failpoints(text); }
  ~Failpoints() { set_failpoints(""); }
};

struct TemporaryDirectory {
  TemporaryDirectory() {
    static int number = 0;
    path = (std::filesystem::temp_directory_path() /
            ("trainer_checkpoint_" + std::to_string(getpid()) + "_" + std::to_string(number++)))
               .string();
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

inline Param::Piece whole_piece(const std::string& tensor, Shape logical) {
  return {tensor, logical, whole_box(logical), whole_box(logical)};
}

// Rows [0, logical[0]) of the tensor at rows [at, ...) of the parameter.
inline Param::Piece rows_piece(const std::string& tensor, Shape logical, int64_t at) {
  Param::Piece piece = whole_piece(tensor, logical);
  piece.to.lo[0] += at;
  piece.to.hi[0] += at;
  return piece;
}

inline Param make_param(std::string name, Shape local, std::vector<Param::Piece> pieces) {
  Param p;
  p.name = std::move(name);
  p.local = local;
  p.pieces = std::move(pieces);
  return p;
}

inline std::vector<Param> awkward_params(int64_t scale = 1) {
  const int64_t width = 7, vocab = 13 * scale;
  std::vector<Param> params;
  params.push_back(
      make_param("embedding", {vocab + 3, width}, {whole_piece("model.embed_tokens.weight", {vocab, width})}));
  params.push_back(make_param("norm", {width}, {whole_piece("model.norm.weight", {width})}));
  params.push_back(make_param("qkv", {5 + 3 + 3, width},
                              {rows_piece("q_proj.weight", {5, width}, 0), rows_piece("k_proj.weight", {3, width}, 5),
                               rows_piece("v_proj.weight", {3, width}, 8)}));
  params.push_back(make_param(
      "bias", {11},
      {rows_piece("q_proj.bias", {5}, 0), rows_piece("k_proj.bias", {3}, 5), rows_piece("v_proj.bias", {3}, 8)}));
  return params;
}

// Values that depend on logical names and indices only, so that two layouts of them are one state. REQUIRES: padding is
// zero. Weights are made from the values that their masters have or would have.
inline void fill_state(const StateView& view, uint64_t seed) {
  for (const NamedBox& b : boxes_to_load(view)) {
    const int rank = b.logical.rank;
    const Rectangle r = rectangle_of(b.box, rank);
    std::vector<float> row(size_t(r.columns()));
    for (int64_t i = 0; i < r.rows(); ++i) {
      for (int64_t j = 0; j < r.columns(); ++j) {
        const int64_t index = (r.row_begin + i) * b.logical[rank - 1] + r.column_begin + j;
        row[size_t(j)] = float(normal(philox(seed ^ hash_text(b.tensor), uint64_t(index))));
      }
      convert(reinterpret_cast<const std::byte*>(row.data()), stored_type_of(DType::f32),
              row_part(b.values, i, i + 1).data, b.values.dtype, r.columns());
    }
  }
  refresh_weights(view);
}

struct Held {  // of `shards` equal slices of the master and the moments
  int shard = 0, shards = 1;
};

// The state of one rank over its own memory. `cuts` divides what it holds of every bucket into that many parts.
class State {
 public:
  State(std::vector<Param> params, std::vector<std::vector<ParamId>> buckets, bool with_master, int cuts = 1,
        Held held = {})
      : params_(std::move(params)), held_(held) {
    for (auto& ids : buckets) buckets_.push_back(bucket(ids));
    size_t total = 0;
    for (const Bucket& b : buckets_) total += size_t(b.padded) * (with_master ? 14 : 12);
    bytes_.resize(total + 64);
    size_t at = 0;
    for (int b = 0; b < int(buckets_.size()); ++b) {
      if (with_master) add(b, Role::weight, DType::bf16, 0, at);
      add(b, with_master ? Role::master : Role::weight, DType::f32, cuts, at);
      add(b, Role::moment1, DType::f32, cuts, at);
      add(b, Role::moment2, DType::f32, cuts, at);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  StateView view() const { return {params_, buckets_, parts_}; }
  std::vector<std::byte>& bytes() { return bytes_; }

  void fill(uint64_t seed) {
    std::memset(bytes_.data(), 0, bytes_.size());
    fill_state(view(), seed);
  }

 private:
  Bucket bucket(const std::vector<ParamId>& ids) const {
    Bucket b;
    b.params = ids;
    for (const ParamId id : ids) {
      b.begin.push_back(b.size);
      b.size += params_[id].local.elements();
    }
    b.padded = (b.size + 23) / 24 * 24;  // shards of 2, 3, 4 and 8 ranks
    return b;
  }

  // `cuts` 0: the whole bucket, whatever the shard.
  void add(int b, Role role, DType type, int cuts, size_t& at) {
    const int64_t padded = buckets_[size_t(b)].padded, size = cuts == 0 ? padded : padded / held_.shards;
    const int64_t first = cuts == 0 ? 0 : size * held_.shard;
    for (int c = 0; c < std::max(cuts, 1); ++c) {
      const int64_t begin = first + size * c / std::max(cuts, 1), end = first + size * (c + 1) / std::max(cuts, 1);
      parts_.push_back({b, role, make_tensor(bytes_.data() + at, type, {end - begin}), begin, end});
      at += size_t(end - begin) * size_of(type);
    }
  }

  std::vector<Param> params_;
  Held held_;
  std::vector<Bucket> buckets_;
  std::vector<StatePart> parts_;
  std::vector<std::byte> bytes_;
};

inline RunState run_at(int64_t step) {
  RunState run;
  run.step = step;
  run.tokens = step * 100;
  run.samples = step * 4;
  run.data_hash = 0xdada + uint64_t(step);
  run.seed = 7;
  run.tokenizer = "chars";
  run.model = {{"family", "llama"}};
  return run;
}

}  // namespace trainer
