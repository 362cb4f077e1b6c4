#include "parallel/schedules/problem.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "parallel/schedules/clock.h"
#include "parallel/schedules/text.h"

namespace trainer {
namespace {

enum class State : uint8_t { nothing, forwarded, half, done };

// Every micro-batch of every chunk once, each after what it needs of its own stage.
std::optional<OrderProblem> find_in_stage(const std::vector<Action>& order, int stage, const PipeShape& shape) {
  std::vector<State> states(size_t(shape.microbatches) * size_t(shape.chunks));
  for (size_t k = 0; k < order.size(); ++k) {
    const Action& a = order[k];
    const auto wrong = [&](std::string_view what) {
      return OrderProblem{stage, int(k), fmt::format("{} {}", to_text(a), what)};
    };
    if (a.microbatch >= shape.microbatches || a.chunk >= shape.chunks)
      return wrong(fmt::format("of {} micro-batches and {} chunks", shape.microbatches, shape.chunks));
    State& s = states[size_t(a.microbatch) * size_t(shape.chunks) + size_t(a.chunk)];
    const State wanted = a.verb == Verb::forward          ? State::nothing
                         : a.verb == Verb::backward_input ? State::forwarded
                                                          : State::half;
    if (s > wanted) return wrong("comes twice");
    if (s < wanted)
      return wrong(a.verb == Verb::backward_input ? "comes before its forward" : "comes before its backward_input");
    s = a.whole ? State::done : State(int(wanted) + 1);
  }
  for (size_t k = 0; k < states.size(); ++k)
    if (states[k] != State::done)
      return OrderProblem{
          stage, int(order.size()),
          fmt::format("micro-batch {} of chunk {} has no {}", k / size_t(shape.chunks), k % size_t(shape.chunks),
                      states[k] == State::nothing     ? "forward"
                      : states[k] == State::forwarded ? "backward"
                                                      : "backward_weight")};
  return {};
}

// Messages that a lane carries from one stage to another, by what they are for: a micro-batch at a position.
using Lane = std::tuple<int, int, bool>;  // from, to, gradient
using Message = std::pair<int, int>;
struct Arrival {
  Message message;
  size_t action = 0;
};

class Messages {
 public:
  Messages(const Orders& orders, const PipeShape& shape, Placement placement) : shape_(shape) {
    stage_of_.resize(size_t(shape.positions()));
    for (int s = 0; s < shape.stages; ++s)
      for (int c = 0; c < shape.chunks; ++c) stage_of_[size_t(position_at(placement, shape, s, c))] = s;
    for (int s = 0; s < shape.stages; ++s)
      for (size_t k = 0; k < orders[size_t(s)].size(); ++k) {
        const Action& a = orders[size_t(s)][k];
        if (a.verb == Verb::backward_weight) continue;
        const int position = position_at(placement, shape, s, a.chunk), step = a.verb == Verb::forward ? 1 : -1;
        if (crosses(position, position + step)) sent_[lane(position, step)].push_back({position + step, a.microbatch});
        if (crosses(position - step, position))
          needed_[lane(position - step, step)].push_back({{position, a.microbatch}, k});
      }
  }
  std::optional<OrderProblem> find_disorder() const {
    for (const auto& [lane, arrivals] : needed_)
      for (size_t k = 0; k < arrivals.size(); ++k)
        if (const Message& sent = sent_.at(lane)[k]; sent != arrivals[k].message) {
          const auto& [from, to, gradient] = lane;
          return OrderProblem{to, int(arrivals[k].action),
                              fmt::format("needs the {} of micro-batch {}, but the next that stage {} sends is that of "
                                          "micro-batch {} for position {}",
                                          gradient ? "gradient" : "activation", arrivals[k].message.second, from,
                                          sent.second, sent.first)};
        }
    return {};
  }

 private:
  bool crosses(int a, int b) const {
    return std::min(a, b) >= 0 && std::max(a, b) < shape_.positions() && stage_of_[size_t(a)] != stage_of_[size_t(b)];
  }
  Lane lane(int from, int step) const { return {stage_of_[size_t(from)], stage_of_[size_t(from + step)], step < 0}; }

  const PipeShape shape_;
  std::vector<int> stage_of_;
  std::map<Lane, std::vector<Message>> sent_;
  std::map<Lane, std::vector<Arrival>> needed_;
};

}  // namespace

std::optional<OrderProblem> find_problem(const Orders& orders, const PipeShape& shape, Placement placement) {
  for (int s = 0; s < shape.stages; ++s)
    if (auto problem = find_in_stage(orders[size_t(s)], s, shape)) return problem;
  if (auto problem = Messages(orders, shape, placement).find_disorder()) return problem;
  const ScheduleTimes times = clock_orders(orders, shape, placement, {});
  for (int s = 0; s < shape.stages; ++s)
    if (const size_t ran = times.stages[size_t(s)].actions.size(); ran < orders[size_t(s)].size())
      return OrderProblem{s, int(ran), "the stages wait for each other:" + times.stuck};
  return {};
}

}  // namespace trainer
