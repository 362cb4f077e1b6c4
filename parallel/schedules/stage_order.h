// What orders are written with: a stage's actions, in which every chunk takes its micro-batches in turn.
#pragma once
#include <deque>

#include "core/plan/schedule.h"

namespace trainer {

// A schedule may be written for more micro-batches than there are: those beyond the shape's are left out. What is left
// of an order that does not deadlock does not deadlock either, for nothing waits for another micro-batch.
class StageOrder {
 public:
  explicit StageOrder(const PipeShape& p)
      : microbatches_(p.microbatches), forwards_(size_t(p.chunks)), backwards_(size_t(p.chunks)) {}

  void forward(int chunk = 0) { add({Verb::forward, next(forwards_, chunk), int16_t(chunk)}); }
  // Both halves at once.
  void backward(int chunk = 0) { add({Verb::backward_input, next(backwards_, chunk), int16_t(chunk), true}); }
  // The input half; the weight half is owed.
  void input(int chunk = 0) {
    const Action a{Verb::backward_input, next(backwards_, chunk), int16_t(chunk)};
    owed_.push_back(a);
    add(a);
  }
  // The weight half that has been owed longest.
  void weight() {
    Action a = owed_.front();
    owed_.pop_front();
    a.verb = Verb::backward_weight;
    add(a);
  }
  int forwards(int chunk = 0) const { return forwards_[size_t(chunk)]; }
  int backwards(int chunk = 0) const { return backwards_[size_t(chunk)]; }
  int owed() const { return int(owed_.size()); }
  std::vector<Action> take() {
    while (owed() > 0) weight();
    return std::move(actions_);
  }

 private:
  static int16_t next(std::vector<int>& counts, int chunk) { return int16_t(counts[size_t(chunk)]++); }
  void add(const Action& a) {
    if (a.microbatch < microbatches_) actions_.push_back(a);
  }

  int microbatches_;
  std::vector<int> forwards_, backwards_;  // begun, per chunk
  std::deque<Action> owed_;
  std::vector<Action> actions_;
};

// An order per stage: `write(order, stage)`.
template <class Write>
Orders each_stage(const PipeShape& p, Write write) {
  Orders orders;
  for (int stage = 0; stage < p.stages; ++stage) {
    StageOrder order(p);
    write(order, stage);
    orders.push_back(order.take());
  }
  return orders;
}

}  // namespace trainer
