// Data of the NCCL shim: what a collective leaves, and where.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/fakecuda/nccl_clique.h"

namespace fakenccl {
namespace {

constexpr size_t kRun = 64;  // elements whose sums take the same order

template <class T>
struct Number {
  static T load(const void* p, size_t i) { return static_cast<const T*>(p)[i]; }
  static void store(void* p, size_t i, T x) { static_cast<T*>(p)[i] = x; }
  static T rounded(T x) { return x; }
  static T add(T a, T b) {
    if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else return a + b;
  }
};
template <>
struct Number<__nv_bfloat16> {
  static float load(const void* p, size_t i) { return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]); }
  static void store(void* p, size_t i, float x) { static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16(x); }
  static float rounded(float x) { return __bfloat162float(__float2bfloat16(x)); }
  static float add(float a, float b) { return a + b; }
};

// Which rank's share a run of elements begins with.
class Order {
 public:
  explicit Order(size_t ranks) : ranks_(ranks) {
    const char* seed = std::getenv("FAKENCCL_RANDOM_ORDER");
    if (seed) random_ = std::strtoull(seed, nullptr, 10) * 0x9E3779B97F4A7C15ull + ++drawn_;
  }
  size_t first(size_t element) {
    if (!random_) return (element / kRun + 1) % ranks_;
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return size_t(random_ >> 20) % ranks_;
  }

 private:
  static inline uint64_t drawn_ = 0;
  const size_t ranks_;
  uint64_t random_ = 0;
};

// Elements [begin, begin + n) of all shares.
template <class T>
void reduce(const std::vector<const void*>& from, size_t begin, size_t n, ncclRedOp_t op, char* out) {
  using N = Number<T>;
  Order order(from.size());
  for (size_t at = 0; at < n;) {
    const size_t end = std::min(n, (begin + at) / kRun * kRun + kRun - begin), first = order.first(begin + at);
    for (; at < end; ++at) {
      auto sum = N::load(from[first], begin + at);
      for (size_t k = 1; k < from.size(); ++k) {
        const auto x = N::load(from[(first + k) % from.size()], begin + at);
        if (op == ncclSum) sum = N::rounded(N::add(sum, x));
        else if (op == ncclMax) sum = x > sum ? x : sum;
        else sum = x < sum ? x : sum;
      }
      N::store(out, at, sum);
    }
  }
}

void reduce(const Meet& m, size_t begin, size_t n, char* out) {
  std::vector<const void*> from;
  for (const Call& c : m.calls) from.push_back(c.send);
  const ncclRedOp_t op = m.calls[0].op;
  switch (m.calls[0].type) {
    case ncclFloat32: return reduce<float>(from, begin, n, op, out);
    case ncclFloat64: return reduce<double>(from, begin, n, op, out);
    case ncclBfloat16: return reduce<__nv_bfloat16>(from, begin, n, op, out);
    case ncclInt32: return reduce<int32_t>(from, begin, n, op, out);
    case ncclInt64: return reduce<int64_t>(from, begin, n, op, out);
    case ncclUint8: return reduce<uint8_t>(from, begin, n, op, out);
    default: fake::fail("nccl: no sum of %s in the shim", name_of(m.calls[0].type));
  }
}

}  // namespace

size_t size_of(ncclDataType_t t) {
  switch (t) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

const char* name_of(ncclDataType_t t) {
  switch (t) {
    case ncclInt8: return "int8";
    case ncclUint8: return "uint8";
    case ncclBfloat16: return "bfloat16";
    case ncclInt32: return "int32";
    case ncclFloat32: return "float32";
    case ncclInt64: return "int64";
    case ncclFloat64: return "float64";
    default: return "a type the shim has not";
  }
}

void poison(void* p, size_t bytes) {
  fake::acc_write(p, bytes);
  std::memset(p, 0xFF, bytes);
}

void run(const Meet& m) {
  const Call& c = m.calls[0];
  const size_t n = m.calls.size(), bytes = c.count * size_of(c.type);
  for (const Call& of : m.calls) fake::acc_read(of.send, bytes * (c.kind == Kind::reduce_scatter ? n : 1));
  std::vector<std::vector<char>> out(n);
  std::vector<char> all;
  if (c.kind == Kind::all_reduce) {
    all.resize(bytes);
    reduce(m, 0, c.count, all.data());
  } else if (c.kind == Kind::reduce_scatter) {
    for (size_t r = 0; r < n; ++r) {
      out[r].resize(bytes);
      reduce(m, r * c.count, c.count, out[r].data());
    }
  } else if (c.kind == Kind::all_gather) {
    for (const Call& of : m.calls) {
      const char* from = static_cast<const char*>(of.send);
      all.insert(all.end(), from, from + bytes);
    }
  } else {
    const char* from = static_cast<const char*>(m.calls[size_t(c.root)].send);
    all.assign(from, from + bytes);
  }
  for (size_t r = 0; r < n; ++r) {
    const std::vector<char>& mine = c.kind == Kind::reduce_scatter ? out[r] : all;
    fake::acc_write(m.calls[r].recv, mine.size());
    if (!mine.empty()) std::memcpy(m.calls[r].recv, mine.data(), mine.size());
  }
}

}  // namespace fakenccl
