// The model section of a checkpoint's manifest, which `model_json` of core/spec wrote, as a spec again.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "core/spec/run_spec.h"

namespace trainer {

// A key that is not there has no effect in its model and keeps its default. Throws Error(checkpoint) naming `path` and
// the key.
ModelSpec model_from_json(const nlohmann::json&, const std::string& path);

}  // namespace trainer
