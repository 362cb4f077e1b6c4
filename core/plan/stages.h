// Which part of the model a stage holds: layers are cut over the positions of the pipeline (parallel.pipeline.split),
// and the schedule says which stage runs which position. The embedding goes with the first layer, the head with the
// last.
#pragma once
#include <memory>
#include <vector>

#include "core/plan/schedule.h"

namespace trainer {

class Stages {
 public:
  // Throws Error(spec) where there are fewer layers than positions.
  Stages(const RunSpec&, const Model&, Schedule, int microbatches);

  struct Place {
    int stage = 0, chunk = 0;
  };
  struct Blocks {
    int first = 0, end = 0;
  };
  const Schedule& schedule() const { return schedule_; }
  // The stage's actions. Planned for all stages when first asked for, and shared with copies: not from two threads.
  // Throws Error(spec) for a shape that the schedule cannot run.
  const std::vector<Action>& order(int stage) const;
  const PipeShape& shape() const { return shape_; }
  int positions() const { return shape_.positions(); }
  int position(int stage, int chunk) const { return position_at(schedule_.placement, shape_, stage, chunk); }
  // Whether a message takes the lanes of gradients. In a V both kinds go both ways, and lanes go by the direction: then a
  // lane has one peer, and no message waits behind one for somebody else, which could close a circle.
  bool on_gradient_lane(int from, int to, bool gradient) const {
    return schedule_.placement == Placement::vee ? to < from : gradient;
  }
  Place owner(int position) const { return owners_[size_t(position)]; }
  int position_of(int block) const { return position_of_block_[size_t(block)]; }
  int stage_of(int block) const { return owner(position_of(block)).stage; }
  Blocks blocks(int position) const { return blocks_[size_t(position)]; }

 private:
  Schedule schedule_;
  PipeShape shape_;
  std::shared_ptr<Orders> orders_ = std::make_shared<Orders>();
  std::vector<Place> owners_;
  std::vector<int> position_of_block_;
  std::vector<Blocks> blocks_;
};

}  // namespace trainer
