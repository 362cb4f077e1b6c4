// Which part of the model a stage holds: layers are cut over the positions of the pipeline (parallel.pipeline.split),
// and the schedule says which stage runs which position. The embedding goes with the first layer, the head with the
// last.
#pragma once
#include <vector>

#include "core/plan/schedule.h"

namespace trainer {

class Stages {
 public:
  // Throws Error(spec) where there are fewer layers than positions. `schedule` must outlive it.
  Stages(const RunSpec&, const Model&, const Schedule& schedule, int microbatches);

  struct Place {
    int stage = 0, chunk = 0;
  };
  struct Blocks {
    int first = 0, end = 0;
  };
  const Schedule& schedule() const { return *schedule_; }
  const PipeShape& shape() const { return shape_; }
  int positions() const { return shape_.stages * shape_.chunks; }
  int position(int stage, int chunk) const { return schedule_->place(shape_, stage, chunk); }
  Place owner(int position) const { return owners_[size_t(position)]; }
  int position_of(int block) const { return position_of_block_[size_t(block)]; }
  int stage_of(int block) const { return owner(position_of(block)).stage; }
  Blocks blocks(int position) const { return blocks_[size_t(position)]; }

 private:
  const Schedule* schedule_;
  PipeShape shape_;
  std::vector<Place> owners_;
  std::vector<int> position_of_block_;
  std::vector<Blocks> blocks_;
};

}  // namespace trainer
