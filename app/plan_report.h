// What a plan needs and does, in words and as JSON.
#pragma once
#include "app/plan_clock.h"

namespace trainer {

void print_plan_table(const PlannedWorld&, const ClockedStep&, const Machine&);
void print_plan_json(const PlannedWorld&, const ClockedStep&, const Machine&);

}  // namespace trainer
