#include <set>

#include "core/model/model.h"
#include "parallel/passes/passes.h"

namespace trainer {
namespace {

class Expander {
 public:
  explicit Expander(const PlanContext& c) : c_(c), stages_(c.stages), layouts_(layouts_of(c.model)) {}
  Code run(Code code) {
    code_ = std::move(code);
    code_.push_back({.verb = Verb::begin});
    for (const Action& a : stages_.order(c_.mesh.stage)) {
      if (a.verb == Verb::forward) forward(a);
      else if (trains(c_.key.kind)) backward(a);
    }
    return std::move(code_);
  }

 private:
  Stages::Blocks blocks(const Action& a) const { return stages_.blocks(stages_.position(c_.mesh.stage, a.chunk)); }
  void push(Verb v, const Action& a, int b) {
    code_.push_back({.verb = v, .microbatch = a.microbatch, .chunk = a.chunk, .block = int16_t(b)});
  }
  // A micro-batch is loaded before the first block that reads it, now or in its backward.
  void forward(const Action& a) {
    for (int b = blocks(a).first; b < blocks(a).end; ++b) {
      const BlockLayout& l = layouts_[size_t(b)];
      if ((l.reads | l.backward_input_reads | l.backward_weight_reads) && loaded_.insert(a.microbatch).second)
        code_.push_back({.verb = Verb::load, .lane = Lane::load, .microbatch = a.microbatch});
      push(Verb::forward, a, b);
    }
  }
  void backward(const Action& a) {
    for (int b = blocks(a).end - 1; b >= blocks(a).first; --b) {
      const BlockLayout& l = layouts_[size_t(b)];
      if (a.verb == Verb::backward_input && l.has_input_half) push(Verb::backward_input, a, b);
      if ((a.verb == Verb::backward_weight || a.whole) && l.has_weight_half) push(Verb::backward_weight, a, b);
    }
  }

  const PlanContext& c_;
  const Stages& stages_;
  const std::vector<BlockLayout> layouts_;
  Code code_;
  std::set<int> loaded_;
};

}  // namespace

Code expand(Code code, const PlanContext& c, const Program&) {
  if (!computes(c.key.kind)) return code;
  return Expander(c).run(std::move(code));
}

}  // namespace trainer
