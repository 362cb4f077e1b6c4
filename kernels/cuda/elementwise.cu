// Copy, Add, Scale, Zero: bytes moved are the ideal, every operand once (bf16 to bf16: 4 bytes an element for Copy,
// Scale, 6 for Add).
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace trainer::cuda {
namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Times {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Bytes, whatever they mean; `from` may be empty: zeros.
template <int V>
struct CopyBytes {
  static constexpr int kInFlight = 2;
  using Held = Pack<uint8_t, V>;
  Rows<uint8_t> to;
  Rows<const uint8_t> from;
  __device__ Held load(const At& at) const { return from ? cuda::load<V>(from.at(at), at.count) : Held{}; }
  __device__ void store(const At& at, const Held& held) const { cuda::store<V>(to.at(at), held, at.count); }
};

Tensor as_bytes(const Tensor& t) {
  Tensor bytes = t;
  if (!t) return bytes;
  const int64_t size = int64_t(size_of(t.dtype));
  bytes.shape = {t.rows(), t.row_elements() * size};
  bytes.row_stride = t.row_stride * size;
  bytes.dtype = DType::u8;
  return bytes;
}

template <int V>
void copy_bytes(Stream& stream, const Tensor& to, const Tensor& from) {
  const Extent extent({&to, &from});
  if constexpr (V > 1)
    if (!aligned(V, extent, {&to, &from})) return copy_bytes < V == 16 ? 4 : V / 2 > (stream, to, from);
  map<V>(stream, extent, CopyBytes<V>{Rows<uint8_t>(to), Rows<const uint8_t>(from)});
}

}  // namespace

void run(Stream& stream, const Copy& op) {
  if (op.to.dtype == op.from.dtype) return copy_bytes<16>(stream, as_bytes(op.to), as_bytes(op.from));
  with_dtype(op.kName, op.to.dtype, [&]<class To>(To) {
    with_dtype(op.kName, op.from.dtype, [&]<class From>(From) { map_one<To, From>(stream, Same{}, op.to, op.from); });
  });
}

void run(Stream& stream, const Add& op) {
  const Tensor& base = op.base ? op.base : op.to;
  with_dtype(op.kName, {&op.to, &base}, [&]<class To>(To) {
    with_dtype(op.kName, op.from.dtype,
               [&]<class From>(From) { map_two<To, To, From>(stream, Plus{}, op.to, base, op.from); });
  });
}

void run(Stream& stream, const Scale& op) {
  with_dtype(op.kName, op.x.dtype, [&]<class T>(T) { map_one<T, T>(stream, Times{op.factor}, op.x, op.x); });
}

void run(Stream& stream, const Zero& op) {
  if (op.x.dense()) cudaMemsetAsync(op.x.data, 0, op.x.bytes(), stream_of(stream));
  else copy_bytes<16>(stream, as_bytes(op.x), Tensor{});
}

}  // namespace trainer::cuda
