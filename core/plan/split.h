// How many layers lie at each position of a pipeline.
#pragma once
#include <vector>

#include "core/model/model.h"
#include "core/spec/run_spec.h"

namespace trainer {

// As parallel.pipeline.split says; `auto`: so that the dearest position costs as few FLOPs as possible (the head counts
// with the last layer, so the last position mostly has fewer), else alike, later positions the longer ones, because the
// first stages keep most micro-batches. Throws Error(spec) where there are fewer layers than positions, or the spec's
// list does not fit them.
std::vector<int> split_layers(const RunSpec&, const Model&, int positions);

}  // namespace trainer
