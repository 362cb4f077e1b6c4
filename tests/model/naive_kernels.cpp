#include "tests/model/naive_kernels.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/ops/ops.h"
#include "core/tensor/bf16.h"

namespace trainer::test {
namespace {

double get(const Tensor& t, int64_t row, int64_t column) {
  const int64_t i = row * t.stride() + column;
  switch (t.dtype) {
    case DType::f32: return double(data_as<float>(t)[i]);
    case DType::bf16: return double(to_float(data_as<bf16>(t)[i]));
    case DType::i32: return data_as<int32_t>(t)[i];
    case DType::i64: return double(data_as<int64_t>(t)[i]);
    default: assert(false); return 0;
  }
}
double get(const Tensor& vector, int64_t i) { return get(vector, i, 0); }
void set(const Tensor& t, int64_t row, int64_t column, double x) {
  const int64_t i = row * t.stride() + column;
  if (t.dtype == DType::bf16) data_as<bf16>(t)[i] = to_bf16(float(x));
  else data_as<float>(t)[i] = float(x);
}
void add(const Tensor& t, int64_t row, int64_t column, double x) { set(t, row, column, get(t, row, column) + x); }

void run(const MatMul& op) {
  for (int64_t m = 0; m < op.m(); ++m)
    for (int64_t n = 0; n < op.n(); ++n) {
      double sum = op.accumulate ? get(op.c, m, n) : 0;
      for (int64_t k = 0; k < op.k(); ++k)
        sum +=
            (op.transpose_a ? get(op.a, k, m) : get(op.a, m, k)) * (op.transpose_b ? get(op.b, n, k) : get(op.b, k, n));
      if (op.bias) sum += get(op.bias, n);
      if (op.residual) sum += get(op.residual, m, n);
      set(op.c, m, n, sum);
    }
}

// Groups of a row: one of C, or G of D.
struct Groups {
  int64_t rows, groups, width;
  explicit Groups(const Tensor& x)
      : rows(x.shape[0]), groups(x.shape.rank == 3 ? x.shape[1] : 1), width(x.row_elements() / groups) {}
};

void run(const RmsNorm& op) {
  assert(!op.residual);
  const Groups s(op.x);
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t g = 0; g < s.groups; ++g) {
      double squares = 0;
      for (int64_t i = 0; i < s.width; ++i) squares += std::pow(get(op.x, n, g * s.width + i), 2);
      const double rstd = 1 / std::sqrt(squares / double(s.width) + double(op.epsilon));
      set(op.rstd, n, g, rstd);
      for (int64_t i = 0; i < s.width; ++i)
        set(op.y, n, g * s.width + i, get(op.x, n, g * s.width + i) * rstd * get(op.weight, i));
    }
}

void clear(const Tensor& t) {
  for (int64_t n = 0; n < t.rows(); ++n)
    for (int64_t i = 0; i < t.row_elements(); ++i) set(t, n, i, 0);
}

void run(const RmsNormGrad& op) {
  const Groups s(op.x);
  clear(op.partials);
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t g = 0; g < s.groups; ++g) {
      const double rstd = get(op.rstd, n, g);
      double projection = 0;
      for (int64_t i = 0, c = g * s.width; i < s.width; ++i, ++c) {
        projection += get(op.d_y, n, c) * get(op.weight, i) * get(op.x, n, c) * rstd / double(s.width);
        add(op.partials, n % kNormPartials, i, get(op.d_y, n, c) * get(op.x, n, c) * rstd);
      }
      for (int64_t i = 0, c = g * s.width; i < s.width; ++i, ++c)
        set(op.d_x, n, c,
            (op.d_residual ? get(op.d_residual, n, c) : 0) +
                rstd * (get(op.d_y, n, c) * get(op.weight, i) - get(op.x, n, c) * rstd * projection));
    }
}

void run(const LayerNorm& op) {
  assert(!op.residual);
  const int64_t C = op.x.shape[1];
  for (int64_t n = 0; n < op.x.rows(); ++n) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < C; ++c) mean += get(op.x, n, c) / double(C);
    for (int64_t c = 0; c < C; ++c) variance += std::pow(get(op.x, n, c) - mean, 2) / double(C);
    const double rstd = 1 / std::sqrt(variance + double(op.epsilon));
    set(op.mean, n, 0, mean);
    set(op.rstd, n, 0, rstd);
    for (int64_t c = 0; c < C; ++c)
      set(op.y, n, c, (get(op.x, n, c) - mean) * rstd * get(op.weight, c) + get(op.bias, c));
  }
}

void run(const LayerNormGrad& op) {
  const int64_t C = op.x.shape[1];
  clear(op.partials);
  for (int64_t n = 0; n < op.x.rows(); ++n) {
    const double mean = get(op.mean, n), rstd = get(op.rstd, n);
    double average = 0, projection = 0;
    for (int64_t c = 0; c < C; ++c) {
      const double x = (get(op.x, n, c) - mean) * rstd, d = get(op.d_y, n, c) * get(op.weight, c);
      average += d / double(C);
      projection += d * x / double(C);
      add(op.partials, n % kNormPartials, c, get(op.d_y, n, c) * x);
      add(op.partials, kNormPartials + n % kNormPartials, c, get(op.d_y, n, c));
    }
    for (int64_t c = 0; c < C; ++c) {
      const double x = (get(op.x, n, c) - mean) * rstd, d = get(op.d_y, n, c) * get(op.weight, c);
      set(op.d_x, n, c, (op.d_residual ? get(op.d_residual, n, c) : 0) + rstd * (d - average - x * projection));
    }
  }
}

void run(const Rope& op) {
  const int64_t G = op.x.shape[1], D = op.x.shape[2];
  std::vector<float> frequencies(size_t(D / 2));
  rope_frequencies(op.frequencies, D, frequencies.data());
  for (int64_t n = 0; n < op.x.rows(); ++n)
    for (int64_t g = 0; g < G; ++g)
      for (int64_t i = 0; i < D / 2; ++i) {
        const double position = op.positions ? get(op.positions, n) : double(n % op.seq_len);
        const double angle = double(float(position) * frequencies[size_t(i)]) * (op.inverse ? -1 : 1);
        const double a = get(op.x, n, g * D + i), b = get(op.x, n, g * D + i + D / 2);
        set(op.x, n, g * D + i, a * std::cos(angle) - b * std::sin(angle));
        set(op.x, n, g * D + i + D / 2, b * std::cos(angle) + a * std::sin(angle));
      }
}

// One query row of attention: its probabilities over the keys of its sequence.
template <class Op>
std::vector<double> probabilities(const Op& op, int64_t b, int64_t t, int64_t h, double* log_sum = nullptr) {
  const int64_t T = op.seq_len(), D = op.q.shape[2], kv = h / (op.q.shape[1] / op.k.shape[1]), row = b * T + t;
  std::vector<double> p(size_t(T), 0);
  double sum = 0;
  for (int64_t s = 0; s <= t; ++s) {
    if (op.mask.window > 0 && t - s >= op.mask.window) continue;
    if (op.mask.segments && get(op.mask.segments, row) != get(op.mask.segments, b * T + s)) continue;
    double score = 0;
    for (int64_t d = 0; d < D; ++d) score += get(op.q, row, h * D + d) * get(op.k, b * T + s, kv * D + d);
    sum += p[size_t(s)] = std::exp(score * double(op.scale));
  }
  for (double& x : p) x /= sum;
  if (log_sum) *log_sum = std::log2(sum);
  return p;
}

void run(const Attention& op) {
  const int64_t T = op.seq_len(), H = op.q.shape[1], D = op.q.shape[2], ratio = H / op.k.shape[1];
  for (int64_t b = 0; b < op.batch; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t) {
        double log_sum = 0;
        const std::vector<double> p = probabilities(op, b, t, h, &log_sum);
        set(op.lse, b, h * T + t, log_sum);
        for (int64_t d = 0; d < D; ++d) {
          double sum = 0;
          for (int64_t s = 0; s <= t; ++s) sum += p[size_t(s)] * get(op.v, b * T + s, h / ratio * D + d);
          set(op.out, b * T + t, h * D + d, sum);
        }
      }
}

void run(const AttentionGrad& op) {
  const int64_t T = op.seq_len(), H = op.q.shape[1], D = op.q.shape[2], ratio = H / op.k.shape[1];
  for (const Tensor& t : {op.d_q, op.d_k, op.d_v}) clear(t);
  for (int64_t b = 0; b < op.batch; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t) {
        const std::vector<double> p = probabilities(op, b, t, h);
        const int64_t row = b * T + t, kv = h / ratio * D;
        double delta = 0;
        for (int64_t d = 0; d < D; ++d) delta += get(op.d_out, row, h * D + d) * get(op.out, row, h * D + d);
        for (int64_t s = 0; s <= t; ++s) {
          double d_p = 0;
          for (int64_t d = 0; d < D; ++d) d_p += get(op.d_out, row, h * D + d) * get(op.v, b * T + s, kv + d);
          const double d_score = p[size_t(s)] * (d_p - delta) * double(op.scale);
          for (int64_t d = 0; d < D; ++d) {
            add(op.d_q, row, h * D + d, d_score * get(op.k, b * T + s, kv + d));
            add(op.d_k, b * T + s, kv + d, d_score * get(op.q, row, h * D + d));
            add(op.d_v, b * T + s, kv + d, p[size_t(s)] * get(op.d_out, row, h * D + d));
          }
        }
      }
}

void run(const AttentionDecode& op) {
  const int64_t H = op.q.shape[1], D = op.q.shape[2], ratio = H / op.kv_heads, row = op.k_cache.shape[2];
  const int64_t first = op.window > 0 ? std::max<int64_t>(0, op.length - op.window) : 0;
  for (int64_t b = 0; b < op.q.shape[0]; ++b)
    for (int64_t h = 0; h < H; ++h) {
      std::vector<double> out(size_t(D), 0);
      double sum = 0;
      for (int64_t s = first; s < op.length; ++s) {
        double score = 0;
        for (int64_t d = 0; d < D; ++d)
          score += get(op.q, b, h * D + d) * get(op.k_cache, b, s * row + h / ratio * D + d);
        const double p = std::exp(score * double(op.scale));
        sum += p;
        for (int64_t d = 0; d < D; ++d) out[size_t(d)] += p * get(op.v_cache, b, s * row + h / ratio * D + d);
      }
      for (int64_t d = 0; d < D; ++d) set(op.out, b, h * D + d, out[size_t(d)] / sum);
    }
}

template <class F>
void each(const Tensor& t, F&& f) {
  for (int64_t n = 0; n < t.rows(); ++n)
    for (int64_t c = 0; c < t.row_elements(); ++c) f(n, c);
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
constexpr double kGelu = 1.5957691216057308;  // 2 sqrt(2 / pi)

void run(const Gelu& op) {
  each(op.x, [&](int64_t n, int64_t c) {
    const double x = get(op.x, n, c);
    set(op.y, n, c, x * sigmoid(kGelu * (x + 0.044715 * x * x * x)));
  });
}
void run(const GeluGrad& op) {
  each(op.x, [&](int64_t n, int64_t c) {
    const double x = get(op.x, n, c), s = sigmoid(kGelu * (x + 0.044715 * x * x * x));
    set(op.d_x, n, c, get(op.d_y, n, c) * (s + x * s * (1 - s) * kGelu * (1 + 3 * 0.044715 * x * x)));
  });
}
void run(const SwiGlu& op) {
  each(op.y, [&](int64_t n, int64_t c) {
    const double gate = get(op.gate_up, n, c), up = get(op.gate_up, n, op.y.shape[1] + c);
    set(op.y, n, c, gate * sigmoid(gate) * up);
  });
}
void run(const SwiGluGrad& op) {
  each(op.d_y, [&](int64_t n, int64_t c) {
    const int64_t F = op.d_y.shape[1];
    const double gate = get(op.gate_up, n, c), up = get(op.gate_up, n, F + c), s = sigmoid(gate), d = get(op.d_y, n, c);
    set(op.d_gate_up, n, c, d * up * s * (1 + gate * (1 - s)));
    set(op.d_gate_up, n, F + c, d * gate * s);
  });
}

template <class Op>
int64_t position_of(const Op& op, int64_t n) {
  return op.positions ? int64_t(get(op.positions, n)) : n % op.seq_len;
}
// The row of a token in this slice of the vocabulary; -1 in another.
int64_t row_of(const VocabularySlice& s, const Tensor& tokens, int64_t n) {
  const int64_t token = int64_t(get(tokens, n));
  return token >= s.first && token < s.first + s.count ? token - s.first : -1;
}
void run(const Embedding& op) {
  each(op.out, [&](int64_t n, int64_t c) {
    const double position = op.position_table ? get(op.position_table, position_of(op, n), c) : 0;
    const int64_t row = row_of(op.slice, op.tokens, n);
    set(op.out, n, c, (row < 0 ? 0 : get(op.table, row, c)) + position);
  });
}
void run(const EmbeddingGrad& op) {
  const auto add_rows = [&](const Tensor& table, bool accumulate, auto row_of_n) {
    each(table, [&](int64_t row, int64_t c) {
      double sum = accumulate ? get(table, row, c) : 0;
      for (int64_t n = 0; n < op.d_out.rows(); ++n)
        if (row_of_n(n) == row) sum += get(op.d_out, n, c);
      set(table, row, c, sum);
    });
  };
  add_rows(op.d_table, op.accumulate, [&](int64_t n) { return row_of(op.slice, op.tokens, n); });
  if (op.d_position_table)
    add_rows(op.d_position_table, op.accumulate_positions, [&](int64_t n) { return position_of(op, n); });
}

void run(const LogitRecords& op) {
  for (int64_t n = 0; n < op.logits.rows(); ++n) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t v = 0; v < op.slice.count; ++v) largest = std::max(largest, get(op.logits, n, v));
    for (int64_t v = 0; v < op.slice.count; ++v) sum += std::exp(get(op.logits, n, v) - largest);
    const int64_t target = row_of(op.slice, op.targets, n);
    set(op.records, n, 0, largest);
    set(op.records, n, 1, sum);
    set(op.records, n, 2, target < 0 ? 0 : get(op.logits, n, target));
  }
}
void run(const CrossEntropy& op) {
  const int64_t ranks = op.records.shape[0], N = op.logits.rows();
  for (int64_t n = 0; n < N; ++n) {
    const auto record = [&](int64_t r, int64_t i) { return get(op.records, r, n * kLogitRecord + i); };
    double sum = 0, target_logit = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      sum += record(r, 1) * std::exp(record(r, 0));
      target_logit += record(r, 2);
    }
    const double weight = get(op.weights, n), loss = weight * (std::log(sum) - target_logit);
    if (op.row_loss) set(op.row_loss, n, 0, loss);
    if (op.outcome) {
      data_as<Outcome>(op.outcome)->loss_sum += loss;
      data_as<Outcome>(op.outcome)->tokens += weight;
    }
    const int64_t target = row_of(op.slice, op.targets, n);
    for (int64_t v = 0; op.train && v < op.logits.shape[1]; ++v) {
      const double p = v < op.slice.count ? std::exp(get(op.logits, n, v)) / sum : 0;
      set(op.logits, n, v, weight * (p - (v == target ? 1 : 0)));
    }
  }
}

void run(const Copy& op) {
  each(op.to, [&](int64_t n, int64_t c) { set(op.to, n, c, get(op.from, n, c)); });
}
void run(const Add& op) {
  const Tensor& base = op.base ? op.base : op.to;
  each(op.to, [&](int64_t n, int64_t c) { set(op.to, n, c, get(base, n, c) + get(op.from, n, c)); });
}
void run(const Zero& op) { clear(op.x); }
void run(const ColumnSum& op) {
  for (int64_t c = 0; c < op.sum.elements(); ++c) {
    double sum = op.accumulate ? get(op.sum, c) : 0;
    for (int64_t n = 0; n < op.x.rows(); ++n) sum += get(op.x, n, c);
    set(op.sum, c, 0, sum);
  }
}
void run(const Dropout& op) {
  const Control& control = *data_as<Control>(op.control);
  const int64_t C = op.x.shape[1];
  each(op.x, [&](int64_t n, int64_t c) {
    const auto index = uint64_t(int64_t(get(op.rows, n)) * C + c);
    const bool keeps = dropout_keeps(op.key, control.seed, control.step, index, op.rate);
    const double x = keeps ? get(op.x, n, c) / (1 - double(op.rate)) : 0;
    set(op.y, n, c, (op.base ? get(op.base, n, c) : 0) + x);
  });
}

template <class Op>
void install() {
  Kernel<Op>::on(DeviceKind::cpu).run = [](Stream&, const void* args) { run(*static_cast<const Op*>(args)); };
}
template <class... Ops>
void install_all() {
  (install<Ops>(), ...);
}

}  // namespace

void install_naive_kernels() {
  install_all<MatMul, RmsNorm, RmsNormGrad, LayerNorm, LayerNormGrad, Rope, Attention, AttentionGrad, AttentionDecode,
              Gelu, GeluGrad, SwiGlu, SwiGluGrad, Embedding, EmbeddingGrad, LogitRecords, CrossEntropy, Copy, Add, Zero,
              ColumnSum, Dropout>();
}

}  // namespace trainer::test
