// ZB-V (Qi et al. 2024, "Pipeline parallelism with controllable memory"): two chunks per stage in a V. Here by a greedy
// clock of unit steps: backward first, then the chunk nearer to the loss, then a new micro-batch if its second chunk
// will find room, then an owed weight gradient. A stage holds at most 2 p chunks' activations.
#include <array>

#include "parallel/schedules/schedules.h"

namespace trainer {
namespace {

constexpr int kNever = 1 << 30;

class GreedyV {
 public:
  explicit GreedyV(const PipeShape& p)
      : positions_(2 * p.stages),
        microbatches_(p.microbatches),
        stages_(size_t(p.stages)),
        forward_done_(size_t(positions_), std::vector<int>(size_t(microbatches_), kNever)),
        backward_done_(forward_done_) {}
  std::vector<Action> run(int stage) {
    left_ = int(stages_.size()) * microbatches_ * 6;
    for (int step = 0; left_ > 0; ++step)
      for (int s = 0; s < int(stages_.size()); ++s) advance(s, step);
    return std::move(stages_[size_t(stage)].actions);
  }

 private:
  struct Stage {
    std::array<int, 2> forwards{}, backwards{}, weights{};  // done, per chunk
    std::vector<Action> actions;
  };
  size_t position(int s, int chunk) const { return size_t(chunk ? positions_ - 1 - s : s); }
  bool can_backward(int s, int c, int step) const {
    const size_t q = position(s, c), m = size_t(stages_[size_t(s)].backwards[size_t(c)]);
    return int(m) < microbatches_ && forward_done_[q][m] < step &&
           (int(q) == positions_ - 1 || backward_done_[q + 1][m] < step);
  }
  bool can_forward(int s, int c, int step) const {
    const Stage& t = stages_[size_t(s)];
    const size_t q = position(s, c), m = size_t(t.forwards[size_t(c)]);
    const int live = t.forwards[0] + t.forwards[1] - t.weights[0] - t.weights[1],
              promised = t.forwards[0] - t.forwards[1];
    return int(m) < microbatches_ && (q == 0 || forward_done_[q - 1][m] < step) &&
           (c == 1 || live + promised + 2 <= positions_);
  }
  void advance(int s, int step) {
    Stage& t = stages_[size_t(s)];
    const auto take = [&](Action a) {
      t.actions.push_back(a);
      --left_;
    };
    for (int c : {1, 0})
      if (can_backward(s, c, step)) {
        const int m = t.backwards[size_t(c)]++;
        backward_done_[position(s, c)][size_t(m)] = step;
        return take(input_of(m, c));
      }
    for (int c : {1, 0})
      if (can_forward(s, c, step)) {
        const int m = t.forwards[size_t(c)]++;
        forward_done_[position(s, c)][size_t(m)] = step;
        return take(forward_of(m, c));
      }
    for (int c : {1, 0})
      if (t.weights[size_t(c)] < t.backwards[size_t(c)]) return take(weight_of(t.weights[size_t(c)]++, c));
  }

  const int positions_, microbatches_;
  std::vector<Stage> stages_;
  std::vector<std::vector<int>> forward_done_,
      backward_done_;  // by position and micro-batch: the step at whose end it is done
  int left_ = 0;
};

}  // namespace

std::vector<Action> zb_v(const PipeShape& p, const Limits&, int stage) {
  require_chunks(p, 2, "zb_v");
  return GreedyV(p).run(stage);
}

}  // namespace trainer
