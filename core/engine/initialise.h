// The state before the first step.
#pragma once
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace trainer {

// Weights and masters from names and indices (core/model/param.h), moments zero; padding is zero everywhere.
void initialise_state(const Program&, const Model&, uint64_t seed, std::span<std::byte> arena);

}  // namespace trainer
