#include "core/plan/stages.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/split.h"

namespace trainer {

Orders Schedule::orders(const PipeShape& shape) const {
  check(chunks == 0 || shape.chunks == chunks, Exit::spec, "[pipeline] {} needs virtual_stages {}, found {}", name,
        chunks, shape.chunks);
  return plan(shape, limits);
}

Stages::Stages(const RunSpec& spec, const Model& model, Schedule schedule, int microbatches)
    : schedule_(std::move(schedule)),
      shape_{int(spec.parallel.pp), int(spec.parallel.pipeline.virtual_stages), microbatches},
      owners_(size_t(positions())),
      blocks_(size_t(positions())) {
  const std::vector<int> layers = split_layers(spec, model, positions());
  for (int s = 0; s < shape_.stages; ++s)
    for (int c = 0; c < shape_.chunks; ++c) owners_[size_t(position(s, c))] = {s, c};
  int at = 0, end = layers[0];  // of the position's layers
  for (int b = 0; b < int(model.blocks.size()); ++b) {
    const int layer = std::clamp(model.layer[size_t(b)], 0, int(spec.model.num_layers) - 1);
    for (; layer >= end; end += layers[size_t(at)]) blocks_[size_t(++at)].first = b;
    position_of_block_.push_back(at);
    blocks_[size_t(at)].end = b + 1;
  }
}

const std::vector<Action>& Stages::order(int stage) const {
  if (orders_->empty()) *orders_ = schedule_.orders(shape_);
  return (*orders_)[size_t(stage)];
}

}  // namespace trainer
