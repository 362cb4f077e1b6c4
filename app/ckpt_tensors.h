// The tensors of a checkpoint, as who compares checkpoints wants them.
#pragma once
#include <string_view>
#include <vector>

#include "io/restore.h"

namespace trainer {

// The order of the model: numbers in names compare as numbers, weights come before moments.
bool before_in_model(std::string_view a, std::string_view b);

// As f32, checked.
std::vector<float> stored_values(const Checkpoint&, const StoredTensor&);

}  // namespace trainer
