#include "parallel/schedules/clock.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/schedules/text.h"

namespace trainer {
namespace {

constexpr double kNever = -1;

class OrderClock {
 public:
  OrderClock(const Orders& orders, const PipeShape& shape, Placement placement, const Limits& limits)
      : orders_(orders), shape_(shape), placement_(placement), limits_(limits) {
    const auto entries = size_t(shape.positions()) * size_t(shape.microbatches);
    forward_end_.assign(entries, kNever);
    input_end_.assign(entries, kNever);
    stage_of_.resize(size_t(shape.positions()));
    for (int s = 0; s < shape.stages; ++s)
      for (int c = 0; c < shape.chunks; ++c) stage_of_[size_t(position_at(placement, shape, s, c))] = s;
  }

  ScheduleTimes run() {
    times_.stages.resize(size_t(shape_.stages));
    for (int s = 0; s < shape_.stages; ++s) runnable_.push_back(shape_.stages - 1 - s);
    while (!runnable_.empty()) {
      const int stage = runnable_.back();
      runnable_.pop_back();
      while (advance(stage)) continue;
    }
    for (int s = 0; s < shape_.stages; ++s) finish(s);
    const double useful = shape_.microbatches * (limits_.f + limits_.b + limits_.w);
    times_.bubble_rate = times_.cost > 0 ? 1 - useful / times_.cost : 0;
    return std::move(times_);
  }

 private:
  size_t entry(int position, int microbatch) const {
    return size_t(position) * size_t(shape_.microbatches) + size_t(microbatch);
  }
  double duration(const Action& a) const {
    const double of_stage = a.verb == Verb::forward           ? limits_.f
                            : a.verb == Verb::backward_weight ? limits_.w
                            : a.whole                         ? limits_.b + limits_.w
                                                              : limits_.b;
    return of_stage / shape_.chunks;
  }
  // When the result of a position arrives at the stage; kNever where it does not yet exist.
  double arrival(const std::vector<double>& ends, int position, int microbatch, int stage) const {
    const double end = ends[entry(position, microbatch)];
    return end == kNever || stage_of_[size_t(position)] == stage ? end : end + limits_.comm;
  }
  // When everything is there that the action needs, or kNever.
  double ready(const Action& a, int stage, int position) const {
    const int m = a.microbatch;
    if (a.verb == Verb::forward) return position == 0 ? 0 : arrival(forward_end_, position - 1, m, stage);
    if (a.verb == Verb::backward_weight) return input_end_[entry(position, m)];
    const double own = forward_end_[entry(position, m)];
    if (own == kNever || position + 1 == shape_.positions()) return own;
    const double gradient = arrival(input_end_, position + 1, m, stage);
    return gradient == kNever ? kNever : std::max(own, gradient);
  }
  // Runs the stage's next action if it can.
  bool advance(int stage) {
    StageTimes& t = times_.stages[size_t(stage)];
    const auto& order = orders_[size_t(stage)];
    if (t.actions.size() == order.size()) return false;
    const Action& a = order[t.actions.size()];
    const int position = position_at(placement_, shape_, stage, a.chunk);
    const double at = ready(a, stage, position);
    if (at == kNever) return false;
    const double start = t.actions.empty() ? at : std::max(at, t.actions.back().end), end = start + duration(a);
    t.actions.push_back({start, end});
    t.busy += end - start;
    if (a.verb == Verb::forward) {
      forward_end_[entry(position, a.microbatch)] = end;
      if (position + 1 < shape_.positions()) wake(position + 1, stage);
    } else if (a.verb == Verb::backward_input) {
      input_end_[entry(position, a.microbatch)] = end;
      if (position > 0) wake(position - 1, stage);
    }
    return true;
  }
  void wake(int position, int from) {
    const int stage = stage_of_[size_t(position)];
    if (stage != from) runnable_.push_back(stage);
  }
  void finish(int stage) {
    StageTimes& t = times_.stages[size_t(stage)];
    const auto& order = orders_[size_t(stage)];
    int in_flight = 0, owed = 0;  // chunks
    for (size_t k = 0; k < t.actions.size(); ++k) {
      const Action& a = order[k];
      if (a.verb == Verb::forward) ++in_flight;
      else if (a.verb == Verb::backward_weight) --owed;
      else {
        --in_flight;
        owed += !a.whole;
      }
      t.peak = std::max(t.peak, (in_flight * limits_.kept + owed * limits_.owed) / shape_.chunks);
      t.in_flight = std::max(t.in_flight, double(in_flight) / shape_.chunks);
    }
    if (t.actions.size() < order.size())
      times_.stuck += fmt::format(" stage {} at {};", stage, to_text(order[t.actions.size()]));
    if (t.actions.empty()) return;
    t.begin = t.actions.front().start;
    t.end = t.actions.back().end;
    times_.makespan = std::max(times_.makespan, t.end);
    times_.cost = std::max(times_.cost, t.end - t.begin);
  }

  const Orders& orders_;
  const PipeShape shape_;
  const Placement placement_;
  const Limits& limits_;
  std::vector<double> forward_end_, input_end_;  // by position and micro-batch
  std::vector<int> stage_of_;                    // by position
  std::vector<int> runnable_;
  ScheduleTimes times_;
};

}  // namespace

ScheduleTimes clock_orders(const Orders& orders, const PipeShape& shape, Placement placement, const Limits& limits) {
  return OrderClock(orders, shape, placement, limits).run();
}

}  // namespace trainer
