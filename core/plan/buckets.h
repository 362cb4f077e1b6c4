// Buckets and the placement of the state: functions of model, mesh, precision and ZeRO stage only.
#pragma once
#include <vector>

#include "core/plan/stages.h"

namespace trainer {

// A bucket per layer (of the first block that names the parameter). Parameters that two stages hold get a bucket of
// their own, for the other parameters of their layer exist on one of them only. Fills Program::buckets and
// Program::state (offsets excepted).
struct StateCopies {  // which slots of copies exist
  bool staging = false, previous = false;
};
void make_buckets(Program&, const PlanContext&, const Stages&, StateCopies);

// What a snapshot saves: the master (in fp32 the weight is the master) and the moments.
std::vector<Role> saved_roles(const PrecisionSpec&);
// Does this stage answer for the bucket's norm and snapshot?
bool counts_bucket(const Stages&, const Mesh&, const Bucket&);
// The same state for another replica of the stage: only which elements a slot holds differs.
void move_to_replica(Program&, const Mesh&);

DType compute_dtype(const PrecisionSpec&);
DType gradient_dtype(const PrecisionSpec&);

}  // namespace trainer
