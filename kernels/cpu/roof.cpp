#include "kernels/cpu/roof.h"

#include <algorithm>
#include <chrono>

#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_kernel.h"

namespace trainer::cpu {
namespace {

constexpr int kRuns = 4;
constexpr int64_t kTokens = 4096;

struct Layer {
  const char* name;
  int64_t in, out;
};
constexpr Layer kLayers[] = {{"qkv", 768, 2304}, {"proj", 768, 768}, {"fc", 768, 3072}, {"fc proj", 3072, 768}};

// y = x W^T, d_x = d_y W, d_W += d_y^T x; x [tokens, in], W [out, in].
enum class Pass { forward, input_gradient, weight_gradient };

MatMul product(const Layer& layer, Pass pass, DType dtype) {
  const auto matrix = [&](int64_t rows, int64_t columns) { return make_tensor(nullptr, dtype, {rows, columns}); };
  const Tensor x = matrix(kTokens, layer.in), y = matrix(kTokens, layer.out), w = matrix(layer.out, layer.in);
  MatMul op;
  switch (pass) {
    case Pass::forward:
      op.c = y, op.a = x, op.b = w;
      op.transpose_b = true;
      break;
    case Pass::input_gradient: op.c = x, op.a = y, op.b = w; break;
    case Pass::weight_gradient:
      op.c = w, op.a = y, op.b = x;
      op.c.dtype = DType::f32;
      op.transpose_a = op.accumulate = true;
      break;
  }
  return op;
}

double best_gflops(Pool& pool, MatMul op) {
  HugeMemory memory;
  const size_t c = op.c.bytes(), a = op.a.bytes(), b = op.b.bytes();  // multiples of 128
  const auto bytes = memory.reserve(c + a + b + scratch_bytes(op, matmul_kernel(op), pool.size()));
  op.c.data = bytes.data();
  op.a.data = op.c.data + c;
  op.b.data = op.a.data + a;
  double seconds = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    multiply(pool, op, bytes.subspan(c + a + b));
    seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return op.cost().flops / seconds * 1e-9;
}

}  // namespace

std::vector<ProductSpeed> product_speeds(Pool& pool, DType dtype) {
  constexpr const char* kPasses[] = {"forward", "input gradient", "weight gradient"};
  std::vector<ProductSpeed> speeds;
  for (const Layer& layer : kLayers)
    for (Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient}) {
      const MatMul op = product(layer, pass, dtype);
      speeds.push_back(
          {fmt::format("{} {}", layer.name, kPasses[size_t(pass)]), op.m(), op.n(), op.k(), best_gflops(pool, op)});
    }
  return speeds;
}

double matmul_roof(Pool& pool, DType dtype) {
  double roof = 0;
  for (const ProductSpeed& speed : product_speeds(pool, dtype)) roof = std::max(roof, speed.gflops);
  return roof;
}

}  // namespace trainer::cpu
