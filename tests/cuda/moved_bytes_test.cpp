// What the kernels of rows and elements load from memory and store there is the ideal, which cost() states: every
// operand once. Beside it stands what an operation's caches serve, and the sums over rows of the norms' gradients.
#include <catch2/catch.hpp>

#include "run_op.h"
#include "tests/cuemu/moved_bytes.h"
#include "tests/support/record.h"

using namespace trainer;
using namespace trainer::test;
using cuemu::MovedBytes;

namespace {

// An operand with the bytes that must be loaded and stored of it, `beside` of which cost() leaves out.
struct Operand {
  const char* name;
  Tensor tensor;
  MovedBytes wanted;
  uint64_t beside = 0;
};
Operand read(const char* name, const Tensor& t) { return {name, t, {t.bytes(), 0}}; }
Operand written(const char* name, const Tensor& t) { return {name, t, {0, t.bytes()}}; }
Operand changed(const char* name, const Tensor& t) { return {name, t, {t.bytes(), t.bytes()}}; }
// What many rows or threads read: it comes from memory once, and then from a cache.
Operand cached(const char* name, const Tensor& t, int64_t bytes) {
  return {name, t, {uint64_t(bytes), 0}, uint64_t(bytes)};
}
// What is far smaller than the other operands: statistics of rows, sums over rows.
Operand small(const char* name, const Tensor& t, MovedBytes wanted) {
  return {name, t, wanted, wanted.loaded + wanted.stored};
}

// `scratch`: what must be moved beside the operands.
template <class Op>
void require_moved(const Op& op, const std::vector<Operand>& operands, MovedBytes scratch = {}) {
  std::vector<cuemu::MovedBytesCount::Range> ranges;
  for (const Operand& o : operands) ranges.push_back({o.tensor.data, o.tensor.bytes()});
  const cuemu::MovedBytesCount count(std::move(ranges));
  run_op(op);
  double ideal = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    INFO(op.kName << ": " << operands[i].name);
    const MovedBytes found = count.of(i), wanted = operands[i].wanted;
    CHECK(found.loaded == wanted.loaded);
    CHECK(found.stored == wanted.stored);
    ideal += double(found.loaded + found.stored - operands[i].beside);
  }
  INFO(op.kName);
  CHECK(ideal == op.cost().bytes);
  CHECK(count.elsewhere().loaded == scratch.loaded);
  CHECK(count.elsewhere().stored == scratch.stored);
}

constexpr int64_t kRows = 48, kColumns = 256;

Buffer filled(DType dtype, Shape shape = {kRows, kColumns}) { return random_buffer(dtype, shape, 1); }

// Elements of a 16-byte access.
int64_t wide(DType dtype) { return 16 / int64_t(size_of(dtype)); }

template <class F>
void for_both(F&& f) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    INFO(name_of(dtype));
    f(dtype);
  }
}

}  // namespace

TEST_CASE("copies, sums and activations move every operand once") {
  for_both([](DType dtype) {
    Buffer a = filled(dtype), b = filled(dtype), c = filled(dtype), wide_a = filled(dtype, {kRows, 2 * kColumns}),
           wide_b = filled(dtype, {kRows, 2 * kColumns});
    require_moved(Copy{a, b}, {written("to", a), read("from", b)});
    for (const DType other : {DType::f32, DType::bf16}) {
      const Buffer from = filled(other);
      require_moved(Copy{a, from}, {written("to", a), read("from", from)});
      require_moved(Add{a, from}, {changed("to", a), read("from", from)});
      require_moved(Add{a, from, b}, {written("to", a), read("from", from), read("base", b)});
    }
    require_moved(Scale{a, 2}, {changed("x", a)});
    require_moved(Gelu{a, b}, {written("y", a), read("x", b)});
    require_moved(GeluGrad{a, b, c}, {written("d_x", a), read("d_y", b), read("x", c)});
    require_moved(GeluGrad{a, a, c}, {changed("d_x", a), read("x", c)});
    require_moved(SwiGlu{a, wide_a}, {written("y", a), read("gate_up", wide_a)});
    require_moved(SwiGluGrad{wide_b, a, wide_a},
                  {written("d_gate_up", wide_b), read("d_y", a), read("gate_up", wide_a)});
  });
}

TEST_CASE("dropout moves every operand once; rows and the control block come from caches") {
  Record<Control> control({.step = 3, .seed = 5});
  const Buffer rows(DType::i64, {kRows}, Values(kRows, 1.0));
  for_both([&](DType dtype) {
    const Buffer x = filled(dtype), base = filled(dtype);
    const Buffer y = filled(dtype);
    const int64_t packs = kRows * kColumns / wide(dtype);
    const Operand numbers = cached("rows", rows, 8 * packs), block = cached("control", control, 16 * packs);
    require_moved(Dropout{y, x, {}, rows, control, 7, 0.5f}, {written("y", y), read("x", x), numbers, block});
    require_moved(Dropout{y, x, base, rows, control, 7, 0.5f},
                  {written("y", y), read("x", x), read("base", base), numbers, block});
  });
}

TEST_CASE("rope moves every operand once; a position serves a vector of pairs in four heads") {
  constexpr int64_t kHeads = 6, kWidth = 64;
  const Buffer positions(DType::i32, {kRows}, Values(kRows, 3.0));
  for_both([&](DType dtype) {
    const Buffer x = filled(dtype, {kRows, kHeads, kWidth});
    require_moved(Rope{.x = x, .positions = {}, .seq_len = kRows, .frequencies = {}}, {changed("x", x)});
    require_moved(Rope{.x = x, .positions = positions, .seq_len = kRows, .frequencies = {}},
                  {changed("x", x), cached("positions", positions, 4 * kRows * 2 * (kWidth / 2 / wide(dtype)))});
  });
}

TEST_CASE("updates move every operand once; the control block comes from caches") {
  constexpr int64_t n = kRows * kColumns, packs = n / 4;
  Record<Control> control({.lr = 1e-3f, .bias1 = 0.1f, .bias2 = 0.05f, .factor = 1});
  const Buffer master = filled(DType::f32, {n}), m = filled(DType::f32, {n}), weight = filled(DType::bf16, {n});
  Buffer v(DType::f32, {n});
  v.fill(1);
  for_both([&](DType dtype) {
    const Buffer g = filled(dtype, {n});
    AdamW op{master, weight, m, v, g, control};
    require_moved(op, {changed("master", master), changed("m", m), changed("v", v), read("g", g),
                       written("weight", weight), cached("control", control, 20 * packs)});
    op.weight = {};
    require_moved(op, {changed("master", master), changed("m", m), changed("v", v), read("g", g),
                       cached("control", control, 20 * packs)});
    Record<Outcome> outcome;
    require_moved(SquaredNorm{g, outcome}, {read("g", g), small("outcome", outcome, {8, 8})}, {8, 8});
  });
  require_moved(SetAside{master, m, control},
                {written("to", master), read("from", m), cached("control", control, 4 * packs)});
}

namespace {

// A norm and its gradient over [rows, columns].
struct Norm {
  int64_t rows, columns;
  DType dtype;
  Buffer x = filled(dtype, {rows, columns}), residual = filled(dtype, {rows, columns}),
         y = filled(dtype, {rows, columns}), sum = filled(dtype, {rows, columns});
  Buffer weight = filled(dtype, {columns}), bias = filled(dtype, {columns});
  Buffer rstd = filled(DType::f32, {rows}), mean = filled(DType::f32, {rows});
  Buffer rms_partials{DType::f32, {kNormPartials, columns}}, layer_partials{DType::f32, {2 * kNormPartials, columns}};

  Operand statistic(const char* name, const Buffer& b) const { return small(name, b, {0, b.tensor().bytes()}); }
  // `times` for every row.
  Operand weights(const char* name, const Buffer& b, int64_t times = 1) const {
    return cached(name, b, times * rows * int64_t(b.tensor().bytes()));
  }
  Operand sums(const Buffer& partials) const { return small("partials", partials, {0, partials.tensor().bytes()}); }
};

}  // namespace

TEST_CASE("norms move every operand once; the weights of a row come from caches") {
  for_both([](DType dtype) {
    const Norm n{kRows, kColumns, dtype};
    const Operand x = read("x", n.x), residual = read("residual", n.residual), y = written("y", n.y),
                  sum = written("sum", n.sum), rstd = n.statistic("rstd", n.rstd), mean = n.statistic("mean", n.mean),
                  weight = n.weights("weight", n.weight), bias = n.weights("bias", n.bias);
    require_moved(RmsNorm{n.y, n.rstd, n.x, n.weight, {}, {}}, {x, y, rstd, weight});
    require_moved(RmsNorm{n.y, n.rstd, n.x, n.weight, n.residual, n.sum}, {x, residual, sum, y, rstd, weight});
    require_moved(LayerNorm{n.y, n.mean, n.rstd, n.x, n.weight, n.bias, {}, {}}, {x, y, mean, rstd, weight, bias});
    require_moved(LayerNorm{n.y, n.mean, n.rstd, n.x, n.weight, n.bias, n.residual, n.sum},
                  {x, residual, sum, y, mean, rstd, weight, bias});
  });
}

// d_x is y's memory, d_y is sum's, d_residual is residual's. Every lane of a row's warp reads its statistics.
TEST_CASE("norms' gradients move every operand once, and beside them the sums over rows") {
  // Rows of a block of kNormPartials: 4, one piece each, straight to the partial sums; 32, four pieces, in scratch.
  for (const int64_t rows : {4 * kNormPartials, 32 * kNormPartials})
    for_both([&](DType dtype) {
      const Norm n{rows, kColumns, dtype};
      const auto lanes = [&](const char* name, const Buffer& b) { return cached(name, b, rows * 32 * 4); };
      const Operand x = read("x", n.x), d_y = read("d_y", n.sum), d_x = written("d_x", n.y),
                    d_residual = read("d_residual", n.residual), weight = n.weights("weight", n.weight, 2),
                    rstd = lanes("rstd", n.rstd), mean = lanes("mean", n.mean);
      const uint64_t pieces = rows == 4 * kNormPartials ? 0 : 4, rms = pieces * n.rms_partials.tensor().bytes(),
                     layer = 2 * rms;
      const Operand rms_sums = n.sums(n.rms_partials), layer_sums = n.sums(n.layer_partials);
      require_moved(RmsNormGrad{n.y, n.rms_partials, n.sum, n.x, n.weight, n.rstd, {}},
                    {x, d_y, d_x, weight, rstd, rms_sums}, {rms, rms});
      require_moved(RmsNormGrad{n.y, n.rms_partials, n.sum, n.x, n.weight, n.rstd, n.residual},
                    {x, d_y, d_x, d_residual, weight, rstd, rms_sums}, {rms, rms});
      require_moved(LayerNormGrad{n.y, n.layer_partials, n.sum, n.x, n.weight, n.mean, n.rstd, n.residual},
                    {x, d_y, d_x, d_residual, weight, mean, rstd, layer_sums}, {layer, layer});
    });
}

TEST_CASE("columns beyond what a row's threads hold are moved again") {
  constexpr int64_t kBeyond = 512, kHeld = 1024 * 4 * 4, kHeldOfGrad = 512 * 2 * 4;  // lanes, packs, values
  const auto again = [](Operand o, int64_t rows, uint64_t times) {
    o.beside = uint64_t(rows * kBeyond) * sizeof(float) * times;
    o.wanted.loaded += o.beside;
    return o;
  };
  const Norm n{2, kHeld + kBeyond, DType::f32};
  require_moved(LayerNorm{n.y, n.mean, n.rstd, n.x, n.weight, n.bias, {}, {}},
                {again(read("x", n.x), n.rows, 2), written("y", n.y), n.statistic("mean", n.mean),
                 n.statistic("rstd", n.rstd), n.weights("weight", n.weight), n.weights("bias", n.bias)});

  // One row a block: sums of columns beyond are set to zero, and added to once.
  const Norm g{kNormPartials, kHeldOfGrad + kBeyond, DType::f32};
  constexpr uint64_t kSums = 2 * kNormPartials * kBeyond * sizeof(float);
  const Operand sums = small("partials", g.layer_partials, {kSums, g.layer_partials.tensor().bytes() + kSums});
  require_moved(LayerNormGrad{g.y, g.layer_partials, g.sum, g.x, g.weight, g.mean, g.rstd, {}},
                {again(read("x", g.x), g.rows, 1), again(read("d_y", g.sum), g.rows, 1), written("d_x", g.y),
                 g.weights("weight", g.weight, 2), cached("mean", g.mean, g.rows * 512 * 4),
                 cached("rstd", g.rstd, g.rows * 512 * 4), sums});
}
