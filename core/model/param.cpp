#include "core/model/param.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/hash.h"
#include "core/base/philox.h"

namespace trainer {
namespace {

struct Position {
  const Param::Piece* piece = nullptr;  // none: padding
  int64_t index = 0;                    // in the logical tensor
  int64_t run = 0;  // so many elements from here on lie side by side in both (of padding: at least one)
};

Position locate(const Param& p, int64_t local_index) {
  std::array<int64_t, 4> at{};
  const int rank = p.local.rank;
  for (int d = rank - 1; d >= 0; --d) {
    at[size_t(d)] = local_index % p.local[d];
    local_index /= p.local[d];
  }
  for (const Param::Piece& piece : p.pieces) {
    int64_t index = 0;
    bool inside = true;
    for (int d = 0; d < rank; ++d) {
      const size_t i = size_t(d);
      inside = inside && at[i] >= piece.to.lo[i] && at[i] < piece.to.hi[i];
      index = index * piece.logical[d] + at[i] - piece.to.lo[i] + piece.from.lo[i];
    }
    const size_t last = size_t(rank - 1);
    if (inside) return {&piece, index, piece.to.hi[last] - at[last]};
  }
  return {nullptr, 0, 1};
}

// One draw serves four consecutive elements: two Box-Muller pairs.
std::array<float, 4> four_normals(uint64_t key, uint64_t block, double std) {
  const Philox4 bits = philox(key, block);
  std::array<float, 4> x;
  for (size_t pair = 0; pair < 2; ++pair) {
    const double radius = std * std::sqrt(-2 * std::log(uniform_open(bits[2 * pair])));
    const double angle = 6.283185307179586 * uniform_open(bits[2 * pair + 1]);
    x[2 * pair] = float(radius * std::cos(angle));
    x[2 * pair + 1] = float(radius * std::sin(angle));
  }
  return x;
}

void fill_normals(uint64_t key, int64_t index, double std, std::span<float> out) {
  for (size_t i = 0; i < out.size();) {
    const std::array<float, 4> x = four_normals(key, uint64_t(index) / 4, std);
    for (size_t k = size_t(index % 4); k < 4 && i < out.size(); ++k, ++i, ++index) out[i] = x[k];
  }
}

}  // namespace

void initial_values(uint64_t seed, const Param& p, int64_t begin, std::span<float> out) {
  for (size_t done = 0; done < out.size();) {
    const Position at = locate(p, begin + int64_t(done));
    const std::span<float> run = out.subspan(done, std::min(size_t(at.run), out.size() - done));
    if (!at.piece || p.init == Init::zeros) std::fill(run.begin(), run.end(), 0.0f);
    else if (p.init == Init::ones) std::fill(run.begin(), run.end(), 1.0f);
    else fill_normals(scramble(seed) ^ hash_text(at.piece->tensor), at.index, double(p.init_std), run);
    done += run.size();
  }
}

float initial_value(uint64_t seed, const Param& p, int64_t local_index) {
  float x = 0;
  initial_values(seed, p, local_index, {&x, 1});
  return x;
}

}  // namespace trainer
