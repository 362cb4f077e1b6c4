// What a plan needs and does, in words and as JSON.
#pragma once
#include "app/planning.h"

namespace trainer {

void print_plan_table(const Planned&);
void print_plan_json(const Planned&);

}  // namespace trainer
