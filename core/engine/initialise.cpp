#include "core/engine/initialise.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/tensor/bf16.h"

namespace trainer {
namespace {

// f(begin, end) over [0, n), on all cores: a million normals take a core 50 ms.
template <class F>
void in_parallel(int64_t n, F&& f) {
  const int64_t threads = std::clamp<int64_t>(n >> 16, 1, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> workers;
  for (int64_t t = 1; t < threads; ++t) workers.emplace_back([&, t] { f(n * t / threads, n * (t + 1) / threads); });
  f(0, n / threads);
}

void store(std::byte* data, DType dtype, int64_t i, float x) {
  if (dtype == DType::bf16) reinterpret_cast<bf16*>(data)[i] = to_bf16(x);
  else reinterpret_cast<float*>(data)[i] = x;
}

}  // namespace

void initialise_state(const Program& program, const Model& model, uint64_t seed, std::span<std::byte> arena) {
  for (const StateSlot& s : program.state) {
    std::byte* data = arena.data() + s.offset;
    std::memset(data, 0, s.bytes);
    if (s.index != int(Role::weight) && s.index != int(Role::master)) continue;
    const Bucket& bucket = program.buckets[size_t(s.bucket)];
    for (size_t k = 0; k < bucket.params.size(); ++k) {
      const Param& param = model.params[bucket.params[k]];
      const int64_t first = bucket.begin[k];
      const int64_t lo = std::max(s.begin, first), hi = std::min(s.end, first + param.local.elements());
      if (lo >= hi) continue;
      in_parallel(hi - lo, [&](int64_t begin, int64_t end) {
        for (int64_t i = lo + begin; i < lo + end; ++i)
          store(data, s.dtype, i - s.begin, initial_value(seed, param, i - first));
      });
    }
  }
}

void round_masters(const Program& program, std::span<std::byte> arena) {
  for (const StateSlot& weight : program.state) {
    const StateSlot* master = find_state(program, weight.bucket, int(Role::master));
    if (weight.index != int(Role::weight) || !master) continue;
    const int64_t lo = std::max(weight.begin, master->begin), hi = std::min(weight.end, master->end);
    const auto* from = reinterpret_cast<const float*>(arena.data() + master->offset) + (lo - master->begin);
    std::byte* to = arena.data() + weight.offset;
    for (int64_t i = lo; i < hi; ++i) store(to, weight.dtype, i - weight.begin, from[i - lo]);
  }
}

}  // namespace trainer
