#include "core/engine/initialise.h"

#include <algorithm>
#include <array>
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

// Elements of the parameter from `begin` on. A master's bf16 weights are its values, rounded.
void write_values(uint64_t seed, const Param& param, int64_t begin, const Tensor& to) {
  if (to.dtype == DType::f32) return initial_values(seed, param, begin, {data_as<float>(to), size_t(to.elements())});
  std::array<float, 4096> values;
  auto* out = data_as<bf16>(to);
  for (int64_t done = 0, n = 0; done < to.elements(); done += n) {
    n = std::min(int64_t(values.size()), to.elements() - done);
    initial_values(seed, param, begin + done, std::span(values).first(size_t(n)));
    std::transform(values.begin(), values.begin() + n, out + done, to_bf16);
  }
}

}  // namespace

void initialise_state(const Program& program, const Model& model, uint64_t seed, std::span<std::byte> arena) {
  for (const StateSlot& s : program.state) {
    std::byte* data = arena.data() + s.offset;
    std::memset(data, 0, s.bytes);
    if (s.index != int(Role::weight) && s.index != int(Role::master)) continue;
    const Tensor slot = make_tensor(data, s.dtype, {s.end - s.begin});
    const Bucket& bucket = program.buckets[size_t(s.bucket)];
    for (size_t k = 0; k < bucket.params.size(); ++k) {
      const Param& param = model.params[bucket.params[k]];
      const int64_t first = bucket.begin[k];
      const int64_t lo = std::max(s.begin, first), hi = std::min(s.end, first + param.local.elements());
      if (lo >= hi) continue;
      in_parallel(hi - lo, [&](int64_t begin, int64_t end) {
        write_values(seed, param, lo + begin - first, flat_part(slot, lo + begin - s.begin, lo + end - s.begin));
      });
    }
  }
}

}  // namespace trainer
