// `trainer ckpt diff A B`: do two checkpoints hold the same state, whatever layouts saved them?
#pragma once
#include <string>
#include <vector>

#include "io/restore.h"

namespace trainer {

// A sentence per tensor that differs, in the order of the model (layer 2 before layer 10, weights before moments). The
// first says more: how many values differ, by how much, and where the first is. Empty: the states are equal.
std::vector<std::string> differences(const Checkpoint& a, const Checkpoint& b);

}  // namespace trainer
