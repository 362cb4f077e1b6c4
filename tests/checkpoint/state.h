// A small state with everything that is awkward: a fused QKV of odd sizes, a padded vocabulary, vectors, several
// buckets.
#pragma once
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/philox.h"
#include "io/boxes.h"
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

inline std::vector<Param> awkward_params(int64_t scale = 1) {
  const int64_t width = 7, vocab = 13 * scale;
  std::vector<Param> params(4);
  params[0] = {"embedding", {vocab + 3, width}, {whole_piece("model.embed_tokens.weight", {vocab, width})}};
  params[1] = {"norm", {width}, {whole_piece("model.norm.weight", {width})}};
  params[2] = {"qkv",
               {5 + 3 + 3, width},
               {rows_piece("q_proj.weight", {5, width}, 0), rows_piece("k_proj.weight", {3, width}, 5),
                rows_piece("v_proj.weight", {3, width}, 8)}};
  params[3] = {
      "bias",
      {11},
      {rows_piece("q_proj.bias", {5}, 0), rows_piece("k_proj.bias", {3}, 5), rows_piece("v_proj.bias", {3}, 8)}};
  return params;
}

// The state of one rank over its own memory. `cuts` divides every bucket's part into that many parts.
class State {
 public:
  State(std::vector<Param> params, std::vector<std::vector<ParamId>> buckets, bool with_master, int cuts = 1)
      : params_(std::move(params)) {
    for (auto& ids : buckets) buckets_.push_back(bucket(ids));
    size_t total = 0;
    for (const Bucket& b : buckets_) total += size_t(b.padded) * (with_master ? 14 : 12);
    bytes_.resize(total + 64);
    size_t at = 0;
    for (int b = 0; b < int(buckets_.size()); ++b) {
      if (with_master) add(b, Role::weight, DType::bf16, 1, at);
      add(b, with_master ? Role::master : Role::weight, DType::f32, cuts, at);
      add(b, Role::moment1, DType::f32, cuts, at);
      add(b, Role::moment2, DType::f32, cuts, at);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  StateView view() const { return {params_, buckets_, parts_}; }
  std::vector<std::byte>& bytes() { return bytes_; }

  // Values that depend on logical names and indices only, so that two layouts of them are one state. Padding stays
  // zero.
  void fill(uint64_t seed) {
    std::memset(bytes_.data(), 0, bytes_.size());
    for (const NamedBox& b : boxes_of(view())) {
      const int rank = b.logical.rank;
      const Rectangle r = rectangle_of(b.box, rank);
      for (int64_t row = 0; row < r.rows(); ++row)
        for (int64_t column = 0; column < r.columns(); ++column) {
          const int64_t index = (r.row_begin + row) * b.logical[rank - 1] + r.column_begin + column;
          const float x = float(normal(philox(seed ^ hash_of(b.tensor), uint64_t(index))));
          std::memcpy(row_part(b.values, row, row + 1).data + size_t(column) * 4, &x, 4);
        }
    }
    refresh_weights(view());
  }

 private:
  static uint64_t hash_of(const std::string& s) { return std::hash<std::string>{}(s); }

  Bucket bucket(const std::vector<ParamId>& ids) const {
    Bucket b;
    b.params = ids;
    for (const ParamId id : ids) {
      b.begin.push_back(b.size);
      b.size += params_[id].local.elements();
    }
    b.padded = (b.size + 7) / 8 * 8;
    return b;
  }

  void add(int b, Role role, DType type, int cuts, size_t& at) {
    const int64_t size = buckets_[size_t(b)].padded;
    for (int c = 0; c < cuts; ++c) {
      const int64_t begin = size * c / cuts, end = size * (c + 1) / cuts;
      parts_.push_back({b, role, make_tensor(bytes_.data() + at, type, {end - begin}), begin, end});
      at += size_t(end - begin) * size_of(type);
    }
  }

  std::vector<Param> params_;
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
