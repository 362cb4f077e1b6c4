#include "app/bench/naive_attention.h"

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/bf16.h"
#include "kernels/cpu/pool.h"

namespace trainer {
namespace {

float load(const Tensor& t, int64_t i) {
  return t.dtype == DType::bf16 ? to_float(data_as<bf16>(t)[i]) : data_as<float>(t)[i];
}
void store(const Tensor& t, int64_t i, float x) {
  if (t.dtype == DType::bf16) data_as<bf16>(t)[i] = to_bf16(x);
  else data_as<float>(t)[i] = x;
}

// Rows of one head of x [N, heads, D], as a matrix [T, D].
Tensor head_of(const Tensor& x, int64_t sequence, int64_t head, int64_t T) {
  Tensor m = row_part(x, sequence * T, (sequence + 1) * T);
  m.row_stride = x.stride();
  m.data += head * x.shape[2] * int64_t(size_of(x.dtype));
  m.shape = {T, x.shape[2]};
  return m;
}
Tensor scores_of(const Tensor& scores, int64_t i) {
  const int64_t T = scores.shape[1];
  return make_tensor(scores.data + size_t(i * T * T) * size_of(scores.dtype), scores.dtype, {T, T});
}

// A pass over all rows of all heads' scores, on the pool.
template <class Row>
void each_row(Stream& stream, const Tensor& scores, Row row) {
  struct Job {
    Tensor scores;
    Row row;
  };
  const Job job{scores, row};
  stream.submit(
      [](Stream& s, const void* args) {
        const Job& j = *static_cast<const Job*>(args);
        const int64_t T = j.scores.shape[1];
        cpu::pool_of(s).tasks(j.scores.shape[0], [&](int64_t head, int) {
          for (int64_t t = 0; t < T; ++t) j.row(head, t);
        });
      },
      &job, sizeof job);
}

void softmax_row(const Tensor& scores, int64_t first, int64_t T, int64_t t, float scale) {
  float top = -INFINITY, sum = 0;
  for (int64_t s = 0; s <= t; ++s) top = std::max(top, load(scores, first + s) * scale);
  for (int64_t s = 0; s <= t; ++s) sum += std::exp(load(scores, first + s) * scale - top);
  for (int64_t s = 0; s < T; ++s)
    store(scores, first + s, s <= t ? std::exp(load(scores, first + s) * scale - top) / sum : 0.0f);
}

struct Sizes {
  int64_t batch, T, H, group;
  double product;  // FLOPs of one product over all heads, the square counted in full
  double square;   // bytes of all scores
};
template <class Op>
Sizes sizes_of(const Op& op, const Tensor& scores) {
  const int64_t T = op.seq_len(), H = op.q.shape[1];
  return {
      op.batch, T, H, H / op.k.shape[1], 2.0 * double(op.batch * H * T * T * op.q.shape[2]), double(scores.bytes())};
}
template <class F>
void each_head(const Sizes& z, F&& f) {
  for (int64_t b = 0; b < z.batch; ++b)
    for (int64_t h = 0; h < z.H; ++h) f(b, h, b * z.H + h);
}

}  // namespace

void naive_attention(Stream& stream, const Attention& op, Tensor scores, const NamedPart& part) {
  const Sizes z = sizes_of(op, scores);
  part("attention: scores q k^T", {z.product, z.square + double(op.q.bytes() + op.k.bytes())}, [&] {
    each_head(z, [&](int64_t b, int64_t h, int64_t i) {
      launch(stream, MatMul{.c = scores_of(scores, i),
                            .a = head_of(op.q, b, h, z.T),
                            .b = head_of(op.k, b, h / z.group, z.T),
                            .bias = {},
                            .residual = {},
                            .transpose_b = true});
    });
  });
  part("attention: softmax", {5.0 * double(scores.elements()), 2 * z.square}, [&] {
    const float scale = op.scale;
    each_row(stream, scores, [scores, scale](int64_t head, int64_t t) {
      softmax_row(scores, (head * scores.shape[1] + t) * scores.shape[1], scores.shape[1], t, scale);
    });
  });
  part("attention: values p v", {z.product, z.square + double(op.v.bytes() + op.out.bytes())}, [&] {
    each_head(z, [&](int64_t b, int64_t h, int64_t i) {
      launch(stream, MatMul{.c = head_of(op.out, b, h, z.T),
                            .a = scores_of(scores, i),
                            .b = head_of(op.v, b, h / z.group, z.T),
                            .bias = {},
                            .residual = {}});
    });
  });
}

// Without grouped heads: a group's gradients of k and v would have to be summed, which says nothing about storing
// scores.
void naive_attention_grad(Stream& stream, const AttentionGrad& op, Tensor scores, Tensor d_scores,
                          const NamedPart& part) {
  const Sizes z = sizes_of(op, scores);
  check(z.group == 1, Exit::usage, "[bench] naive attention: wanted as many kv heads as heads");
  const auto product = [&](const char* name, auto make) {
    part(name, {z.product, z.square + double(2 * op.q.bytes())},
         [&] { each_head(z, [&](int64_t b, int64_t h, int64_t i) { launch(stream, make(b, h, i)); }); });
  };
  const auto head = [&](const Tensor& t, int64_t b, int64_t h) { return head_of(t, b, h, z.T); };
  product("attention grad: d_v = p^T d_out", [&](int64_t b, int64_t h, int64_t i) {
    return MatMul{.c = head(op.d_v, b, h),
                  .a = scores_of(scores, i),
                  .b = head(op.d_out, b, h),
                  .bias = {},
                  .residual = {},
                  .transpose_a = true};
  });
  product("attention grad: d_p = d_out v^T", [&](int64_t b, int64_t h, int64_t i) {
    return MatMul{.c = scores_of(d_scores, i),
                  .a = head(op.d_out, b, h),
                  .b = head(op.v, b, h),
                  .bias = {},
                  .residual = {},
                  .transpose_b = true};
  });
  part("attention grad: softmax", {5.0 * double(scores.elements()), 3 * z.square}, [&] {
    const float scale = op.scale;
    each_row(stream, scores, [scores, d_scores, scale](int64_t head, int64_t t) {
      const int64_t T = scores.shape[1], first = (head * T + t) * T;
      float dot = 0;
      for (int64_t s = 0; s < T; ++s) dot += load(scores, first + s) * load(d_scores, first + s);
      for (int64_t s = 0; s < T; ++s)
        store(d_scores, first + s, scale * load(scores, first + s) * (load(d_scores, first + s) - dot));
    });
  });
  product("attention grad: d_q = d_s k", [&](int64_t b, int64_t h, int64_t i) {
    return MatMul{
        .c = head(op.d_q, b, h), .a = scores_of(d_scores, i), .b = head(op.k, b, h), .bias = {}, .residual = {}};
  });
  product("attention grad: d_k = d_s^T q", [&](int64_t b, int64_t h, int64_t i) {
    return MatMul{.c = head(op.d_k, b, h),
                  .a = scores_of(d_scores, i),
                  .b = head(op.q, b, h),
                  .bias = {},
                  .residual = {},
                  .transpose_a = true};
  });
}

}  // namespace trainer
