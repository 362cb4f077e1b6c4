// Calls of one problem that differ in what its cached description does not hold: addresses, lanes, GPUs, graphs.
#include <catch2/catch.hpp>
#include <thread>

#include "run_op.h"
#include "tests/cuda/matmul_settings.h"
#include "tests/matmul/product.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::test;

namespace {

const ProductCase kProduct{24, 32, 40, DType::bf16, DType::bf16, false, true, false, true};

// A lane whose scratch has the alignment that is promised, and no more.
class Lane128 final : public Stream {
 public:
  explicit Lane128(size_t bytes) : inner_(bytes + 256) {}
  DeviceKind kind() const override { return DeviceKind::cuda; }
  void* native() override { return inner_.native(); }
  void submit(void (*run)(Stream&, const void*), const void* args, size_t) override { run(*this, args); }
  Event record() override { return {}; }
  void wait(Event) override {}
  std::span<std::byte> scratch() override { return inner_.scratch().subspan(128, inner_.scratch().size() - 256); }
  void finish() { inner_.finish(); }

 private:
  OneStream inner_;
};

}  // namespace

TEST_CASE("products: biases at several addresses, one call after the other") {
  const ProductData one(kProduct), other(kProduct);
  const Buffer bias(DType::bf16, {kProduct.n}, Values(size_t(kProduct.n), 3.0));
  MatMul op = other.op;
  op.bias = bias;
  OneStream stream(cuda::scratch_bytes(op));
  cuda::run(stream, one.op);
  cuda::run(stream, op);
  stream.finish();
  require_close(one.c, one.wanted(), rounded_once(DType::bf16));
  Values wanted = other.wanted();
  const Values replaced = other.bias.values();
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += 3.0 - replaced[i % size_t(kProduct.n)];
  require_close(other.c, wanted, rounded_once(DType::bf16));
}

TEST_CASE("products: a lane's scratch needs no more than its alignment") {
  const ProductData data(kProduct);
  Lane128 stream(cuda::scratch_bytes(data.op));
  cuda::run(stream, data.op);
  stream.finish();
  require_close(data.c, data.wanted(), rounded_once(DType::bf16));
}

TEST_CASE("products: ranks that are threads, each on a GPU of its own, get the same bits") {
  constexpr int kRanks = 4;
  const ProductData one(kProduct);
  run_op(one.op);
  std::vector<std::vector<std::byte>> found(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      cudaSetDevice(rank);
      const ProductData data(kProduct);
      OneStream stream(cuda::scratch_bytes(data.op));
      cuda::run(stream, data.op);
      stream.finish();
      found[size_t(rank)] = data.c.bytes();
    });
  for (std::thread& rank : ranks) rank.join();
  for (const auto& bytes : found) REQUIRE(bytes == one.c.bytes());
}

TEST_CASE("products: one thread may use several GPUs in turn") {
  const ProductData one(kProduct), other(kProduct);
  run_op(one.op);
  cudaSetDevice(1);
  run_op(other.op);
  cudaSetDevice(0);
  REQUIRE(other.c.bytes() == one.c.bytes());
}

TEST_CASE("products: the residual's rows may lie at another distance than c's") {
  for (DType type : {DType::f32, DType::bf16})
    for (int suggested : {0, 3}) {
      const MatmulSettings settings;
      fake::cublaslt_settings().suggested = suggested;
      ProductData data({24, 32, 40, type, type, false, true, false, true, true});
      data.residual = random_buffer(type, {24, 32}, 5, 1, {.gap = 7});
      data.op.residual = data.residual;
      run_op(data.op);
      require_close(data.c, data.wanted(), rounded_once(type, 7));
    }
}

TEST_CASE("products: captured once, replayed with the same bits") {
  const ProductCase adds{24, 32, 40, DType::bf16, DType::f32, true, false, true};
  const ProductData direct(adds), captured(adds);
  OneStream stream(cuda::scratch_bytes(direct.op));
  const auto native = static_cast<cudaStream_t>(stream.native());
  cuda::prepare(stream, direct.op);
  cuda::run(stream, direct.op);
  cuda::run(stream, direct.op);
  stream.finish();

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  REQUIRE(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal) == cudaSuccess);
  cuda::run(stream, captured.op);
  REQUIRE(cudaStreamEndCapture(native, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);
  REQUIRE(captured.c.bytes() == ProductData(adds).c.bytes());  // nothing ran yet
  for (int replay = 0; replay < 2; ++replay) REQUIRE(cudaGraphLaunch(ready, native) == cudaSuccess);
  stream.finish();
  REQUIRE(captured.c.bytes() == direct.c.bytes());
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
}
