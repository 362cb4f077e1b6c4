// ZB-p (Qi et al. 2024, "Zero bubble pipeline parallelism", the heuristic of its section 3.1): 1F1B in halves whose
// warm-up is as long as memory allows, and whose weight halves go where a stage would otherwise wait, or where there is
// no more memory. There are three choices in it; all eight variants are planned, and the one whose busiest stage is
// done first is taken, the first of equals.
#include <algorithm>
#include <array>
#include <optional>

#include "core/base/error.h"
#include "parallel/schedules/schedules.h"
#include "parallel/schedules/stage_order.h"

namespace trainer {
namespace {

struct Variant {
  bool patient_warmup = false;  // a warm-up forward that would make the first backward late is left out
  bool backward_first = false;  // a forward that would make the next stage's backward late may be left for later
  bool greedy_weights = false;  // a weight half goes into a gap shorter than itself, whatever other stages wait
};

class AutoPlan {
 public:
  AutoPlan(const PipeShape& p, const Limits& limits, const Variant& variant)
      : n_(p.microbatches),
        last_(p.stages - 1),
        cost_(limits),
        variant_(variant),
        // A stage whose backward_input takes more than it gives back needs that room from the forward on.
        kept_(std::max(limits.kept, limits.owed)),
        most_(limits.activations * p.stages * limits.kept * (1 + 1e-9)),
        stages_(size_t(p.stages), Stage(p)) {}

  // The longest time from a stage's first action to its last.
  double run() {
    warm_up();
    for (int i = 1; i < n_; ++i) round();
    double longest = 0;
    for (Stage& s : stages_) {
      while (s.order.owed() > 0) put_weight(s);
      longest = std::max(longest, s.clock - s.begin);
    }
    return longest;
  }
  Orders take() {
    Orders orders;
    for (Stage& s : stages_) orders.push_back(s.order.take());
    return orders;
  }

 private:
  struct Stage {
    explicit Stage(const PipeShape& p) : order(p) {}
    StageOrder order;
    std::vector<double> forward_end, input_end;  // per micro-batch
    double begin = 0, clock = 0, waited = 0;
    int forwards() const { return order.forwards(); }
    int backwards() const { return order.backwards(); }
  };
  Stage& at(int j) { return stages_[size_t(j)]; }
  double held(const Stage& s, int more_forwards, int fewer_owed = 0) const {
    return (s.forwards() + more_forwards - s.backwards()) * kept_ + (s.order.owed() - fewer_owed) * cost_.owed;
  }
  bool has_room(const Stage& s, int forwards) const { return held(s, forwards) <= most_; }

  double activation_at(int j) { return at(j - 1).forward_end[size_t(at(j).forwards())] + cost_.comm; }
  double gradient_at(int j) { return at(j + 1).input_end[size_t(at(j).backwards())] + cost_.comm; }
  void wait(Stage& s, double until) {
    const double wait = std::max(0.0, until - s.clock);
    if (s.forwards() > 0) {
      s.waited += wait;
      longest_wait_ = std::max(longest_wait_, s.waited);
    }
    s.clock += wait;
  }
  void put_forward(int j) {
    Stage& s = at(j);
    if (j > 0) wait(s, activation_at(j));
    if (s.forwards() == 0) s.begin = s.clock;
    s.order.forward();
    s.forward_end.push_back(s.clock += cost_.f);
  }
  void put_input(int j) {
    Stage& s = at(j);
    if (j < last_) wait(s, gradient_at(j));
    s.order.input();
    s.input_end.push_back(s.clock += cost_.b);
  }
  void put_weight(Stage& s) {
    s.order.weight();
    s.clock += cost_.w;
  }

  // Forwards until the first gradient is there, no more than the stage before has, then the first backward.
  void warm_up() {
    for (int j = 0; j <= last_; ++j) put_forward(j);
    std::vector<int> more(stages_.size());
    double gradient = at(last_).clock + cost_.b;
    for (int j = last_ - 1; j >= 0; --j) {
      double clock = at(j).clock;
      const double there = gradient + cost_.comm;
      int& k = more[size_t(j)];
      while (at(j).forwards() + k < n_ && has_room(at(j), k + 1) &&
             (variant_.patient_warmup ? clock + cost_.f <= there : clock < there)) {
        clock += cost_.f;
        ++k;
      }
      gradient = std::max(clock, there) + cost_.b;
    }
    for (int j = 1; j <= last_; ++j)
      if (at(j).forwards() + more[size_t(j)] < n_)
        more[size_t(j)] = std::max(0, std::min(more[size_t(j)], more[size_t(j - 1)] - 1));
    for (int j = 0; j <= last_; ++j)
      for (int k = 0; k < more[size_t(j)]; ++k) put_forward(j);
    for (int j = last_; j >= 0; --j) put_input(j);
  }

  // Whether a forward now is worth it, though the next stage has forwards to go on with.
  bool wants_forward(int j) {
    Stage& s = at(j);
    if (s.forwards() >= n_) return false;
    if (!variant_.backward_first || j == last_ || s.forwards() < at(j + 1).forwards() + 2) return true;
    const double gradient = at(j + 1).clock + cost_.f + cost_.b + cost_.comm;
    if (s.clock >= gradient) return false;
    int weights = 0;  // to make room
    while (weights < s.order.owed() && held(s, 1, weights) > most_) ++weights;
    if (s.clock + cost_.f + weights * cost_.w <= gradient) return true;
    return gradient - s.clock > longest_wait_ - s.waited;
  }
  // Weight halves into the time until something arrives.
  void fill(Stage& s, double arrival) {
    while (s.order.owed() > 0 && s.clock + cost_.w <= arrival) put_weight(s);
    if (s.order.owed() > 0 && s.clock < arrival &&
        (variant_.greedy_weights || arrival - s.clock > longest_wait_ - s.waited))
      put_weight(s);
  }
  // At most a forward of each stage, then a backward_input of each.
  void round() {
    std::vector<char> wanted(stages_.size());
    for (int j = last_; j >= 0; --j) wanted[size_t(j)] = wants_forward(j) && (j == last_ || wanted[size_t(j + 1)]);
    for (int j = 0; j <= last_; ++j) {
      if (!wanted[size_t(j)]) continue;
      while (at(j).order.owed() > 0 && !has_room(at(j), 1)) put_weight(at(j));
      if (j > 0) fill(at(j), activation_at(j));
      put_forward(j);
    }
    for (int j = last_; j >= 0; --j) {
      if (j < last_) fill(at(j), gradient_at(j));
      while (j == 0 && at(0).forwards() == n_ && at(0).order.owed() > 0) put_weight(at(0));
      put_input(j);
    }
  }

  const int n_, last_;
  const Limits& cost_;
  const Variant variant_;
  const double kept_, most_;
  std::vector<Stage> stages_;
  double longest_wait_ = 0;  // of any stage, after its first action
};

}  // namespace

Orders zb_auto(const PipeShape& p, const Limits& limits) {
  const double least = std::max(limits.kept, limits.owed) / (p.stages * limits.kept);
  check(limits.activations >= least * (1 - 1e-9), Exit::spec,
        "[pipeline] zb_auto within {} x {} stages: a stage cannot hold one micro-batch; wanted a limit of at least {}",
        limits.activations, p.stages, least);
  std::optional<double> best;
  Orders orders;
  for (int choices = 7; choices >= 0; --choices) {
    AutoPlan plan(p, limits, {bool(choices & 4), bool(choices & 2), bool(choices & 1)});
    const double longest = plan.run();
    if (best && longest >= *best) continue;
    best = longest;
    orders = plan.take();
  }
  return orders;
}

}  // namespace trainer
