#include "core/model/blocks/norm.h"

#include "core/model/blocks/linear.h"
#include "core/ops/norm.h"

namespace trainer {
namespace {

Tensor row(const Tensor& t, int64_t r) { return reshaped(row_part(t, r, r + 1), {t.row_elements()}); }

}  // namespace

Norm::Norm(const NormSpec& spec, BlockLayout& layout, ParamId weight, ParamId bias)
    : spec_(spec), weight_(layout.params.size()), bias_(weight_ + 1) {
  layout.params.push_back(weight);
  if (spec_.layer_norm) layout.params.push_back(bias);
}

Buffer Norm::statistics(int64_t rows, Keep keep) const {
  return {spec_.layer_norm ? Shape{2, rows} : Shape{rows}, DType::f32, keep};
}

Buffer Norm::partials(int64_t width) const {
  return {{(spec_.layer_norm ? 2 : 1) * kNormPartials, width}, DType::f32, Keep::always};
}

void Norm::forward(Stream& stream, Tensor y, Tensor statistics, Tensor x, const BlockViews& v) const {
  if (spec_.layer_norm) {
    launch(stream, LayerNorm{.y = y,
                             .mean = row(statistics, 0),
                             .rstd = row(statistics, 1),
                             .x = x,
                             .weight = v.params[weight_],
                             .bias = v.params[bias_],
                             .residual = {},
                             .sum = {},
                             .epsilon = spec_.epsilon});
  } else {
    launch(stream, RmsNorm{.y = y,
                           .rstd = statistics,
                           .x = x,
                           .weight = v.params[weight_],
                           .residual = {},
                           .sum = {},
                           .epsilon = spec_.epsilon});
  }
}

void Norm::backward(Stream& stream, const Backward& b, const BlockViews& v) const {
  if (spec_.layer_norm) {
    launch(stream, LayerNormGrad{.d_x = b.d_x,
                                 .partials = b.partials,
                                 .d_y = b.d_y,
                                 .x = b.x,
                                 .weight = v.params[weight_],
                                 .mean = row(b.statistics, 0),
                                 .rstd = row(b.statistics, 1),
                                 .d_residual = b.d_residual});
  } else {
    launch(stream, RmsNormGrad{.d_x = b.d_x,
                               .partials = b.partials,
                               .d_y = b.d_y,
                               .x = b.x,
                               .weight = v.params[weight_],
                               .rstd = b.statistics,
                               .d_residual = b.d_residual});
  }
}

void Norm::weight_grad(Stream& stream, Tensor partials, const BlockViews& v) const {
  sum_rows(stream, v.grads[weight_], row_part(partials, 0, kNormPartials));
  if (spec_.layer_norm) sum_rows(stream, v.grads[bias_], row_part(partials, kNormPartials, 2 * kNormPartials));
}

}  // namespace trainer
