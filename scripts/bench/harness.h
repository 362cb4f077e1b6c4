// Times a library's collectives as `trainer bench comm` times the trainer's: the best of several series, each as slow
// as its slowest rank, tensors touched before. Rank 0 prints "operation<tab>bytes of the full tensor<tab>seconds".
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

inline void add_f32(float* to, const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}
inline float widen(uint16_t x) {
  const uint32_t bits = uint32_t(x) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline void add_bf16(uint16_t* to, const uint16_t* a, const uint16_t* b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float f = widen(a[i]) + widen(b[i]);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    to[i] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

template <class Library>
void bench(Library& library, int64_t max) {
  const auto seconds_now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const auto take = [max] {
    return static_cast<float*>(std::memset(std::aligned_alloc(4096, size_t(max)), 0, size_t(max)));
  };
  float *a = take(), *b = take();
  const auto time = [&](const char* name, int64_t bytes, const std::function<void()>& run) {
    double best = 1e300;
    int64_t repeats = 2;
    for (int series = 0; series < 6; ++series) {
      library.barrier();
      const double start = seconds_now();
      for (int64_t i = 0; i < repeats; ++i) run();
      const double seconds = library.most((seconds_now() - start) / double(repeats));
      if (series > 0) best = std::min(best, seconds);
      repeats = std::clamp(int64_t(0.06 / seconds), int64_t{2}, int64_t{20000});
    }
    if (library.rank == 0)
      std::printf("%s\t%lld\t%g\n", name, static_cast<long long>(bytes), best), std::fflush(stdout);
  };
  time("barrier", 1024, [&] { library.barrier(); });
  const int next = (library.rank + 1) % library.size, last = (library.rank + library.size - 1) % library.size;
  for (int64_t bytes = 1024; bytes <= max; bytes *= 4) {
    const size_t each = size_t(bytes) / 4 / size_t(library.size), n = each * size_t(library.size);
    time("all_reduce f32", bytes, [&] { library.all_reduce(a, n); });
    time("all_reduce bf16", bytes, [&] { library.all_reduce(reinterpret_cast<uint16_t*>(a), 2 * n); });
    time("reduce_scatter f32", bytes, [&] { library.reduce_scatter(a, b, each); });
    time("all_gather f32", bytes, [&] { library.all_gather(a, b, each); });
    time("all_to_all f32", bytes, [&] { library.all_to_all(a, b, each); });
    if (library.size > 1) time("send and receive", bytes, [&] { library.shift(next, a, last, b, size_t(bytes)); });
  }
}
