#include "core/plan/stages.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/model/model.h"

namespace trainer {

Stages::Stages(const RunSpec& spec, const Model& model, const Schedule& schedule, int microbatches)
    : schedule_(&schedule),
      shape_{int(spec.parallel.pp), int(spec.parallel.pipeline.virtual_stages), microbatches},
      owners_(size_t(positions())),
      blocks_(size_t(positions())) {
  const int layers = int(spec.model.num_layers), n = positions();
  check(layers >= n, Exit::spec,
        "[pipeline] {} layers over {} positions (pp {} x virtual_stages {}): wanted at least one each", layers, n,
        shape_.stages, shape_.chunks);
  for (int s = 0; s < shape_.stages; ++s)
    for (int c = 0; c < shape_.chunks; ++c) owners_[size_t(position(s, c))] = {s, c};
  int at = 0;
  for (int b = 0; b < int(model.blocks.size()); ++b) {
    const int layer = std::clamp(model.layer[size_t(b)], 0, layers - 1);
    for (; layer >= (at + 1) * layers / n; ++at) blocks_[size_t(at + 1)].first = b;
    position_of_block_.push_back(at);
    blocks_[size_t(at)].end = b + 1;
  }
}

}  // namespace trainer
