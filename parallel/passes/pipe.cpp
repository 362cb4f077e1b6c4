#include <algorithm>
#include <map>
#include <set>

#include "core/model/model.h"
#include "parallel/passes/passes.h"

namespace trainer {
namespace {

// A receive one action early hides the transfer under that action, for the memory of one border.
constexpr int kReceiveAhead = 1;

// Sends of a stage, each after the instruction that produces it. The block of a message names the border: act(m,
// block), d_act(m, block).
Code with_sends(const Code& code, const PlanContext& c, const Stages& stages) {
  Code out;
  for (const Instr& i : code) {
    out.push_back(i);
    if (i.block < 0) continue;
    const int position = stages.position_of(i.block);
    const auto [first, end] = stages.blocks(position);
    const bool up = i.verb == Verb::forward && i.block == end - 1 && position + 1 < stages.positions();
    const bool down = i.verb == Verb::backward_input && i.block == first && position > 0;
    if (!up && !down) continue;
    const int peer = stages.owner(position + (up ? 1 : -1)).stage;
    if (peer == c.mesh.stage) continue;
    const bool gradient_lane = stages.on_gradient_lane(c.mesh.stage, peer, down);
    out.push_back({.verb = up ? Verb::send_act : Verb::send_grad,
                   .lane = gradient_lane ? Lane::send_grad : Lane::send_act,
                   .microbatch = i.microbatch,
                   .chunk = i.chunk,
                   .block = int16_t(up ? end : first),
                   .peer = int16_t(peer)});
  }
  return out;
}

struct MessageName {
  bool gradient = false;
  int microbatch = 0, block = 0;
  auto operator<=>(const MessageName&) const = default;
};

// Stages that hold a position beside one of `stage`'s.
std::set<int> neighbours(int stage, const Stages& stages) {
  std::set<int> found;
  for (int chunk = 0; chunk < stages.shape().chunks; ++chunk)
    for (const int step : {-1, 1})
      if (const int q = stages.position(stage, chunk) + step; q >= 0 && q < stages.positions())
        found.insert(stages.owner(q).stage);
  found.erase(stage);
  return found;
}

// What other stages send to this one: a queue per sender and kind, in the sender's order, for a lane keeps it.
class Incoming {
 public:
  Incoming(const PlanContext& c, const Program& p, const Stages& stages) {
    for (const int stage : neighbours(c.mesh.stage, stages)) {
      const Mesh there = c.mesh.at_stage(stage);
      const PlanContext peer{c.spec, there, c.model, c.key, stages};
      queues_.emplace_back();
      queues_.emplace_back();
      for (Instr i : with_sends(expand({}, peer, p), peer, stages)) {
        if (i.peer != c.mesh.stage) continue;
        const bool gradient = i.verb == Verb::send_grad, gradient_lane = i.lane == Lane::send_grad;
        const size_t q = queues_.size() - 2 + gradient_lane;
        i.lane = gradient_lane ? Lane::recv_grad : Lane::recv_act;
        i.verb = gradient ? Verb::recv_grad : Verb::recv_act;
        i.peer = int16_t(stage);
        place_[{gradient, i.microbatch, i.block}] = {q, queues_[q].code.size()};
        queues_[q].code.push_back(i);
      }
    }
  }
  // Appends the message, with those before it in its queue, unless it is none of ours or has been taken.
  void take(const MessageName& name, Code& to) {
    const auto it = place_.find(name);
    if (it == place_.end()) return;
    Queue& q = queues_[it->second.first];
    for (; q.next <= it->second.second; ++q.next) to.push_back(q.code[q.next]);
  }

 private:
  struct Queue {
    Code code;
    size_t next = 0;
  };
  std::vector<Queue> queues_;
  std::map<MessageName, std::pair<size_t, size_t>> place_;
};

// Where each instruction's action starts, and the starts of all actions: runs of one kind, micro-batch and chunk.
struct Actions {
  std::vector<size_t> starts, of;
  explicit Actions(const Code& code) {
    const Instr* last = nullptr;
    for (size_t k = 0; k < code.size(); ++k) {
      const Instr& i = code[k];
      const bool works = i.lane == Lane::compute && i.block >= 0;
      if (works && (!last || i.microbatch != last->microbatch || i.chunk != last->chunk ||
                    (i.verb == Verb::forward) != (last->verb == Verb::forward)))
        starts.push_back(k);
      if (works) last = &i;
      of.push_back(starts.empty() ? 0 : starts.size() - 1);
    }
  }
};

}  // namespace

Code pipe(Code code, const PlanContext& c, const Program& p) {
  return place_pipe(std::move(code), c, p, kReceiveAhead);
}

// Receives stand `receive_ahead` actions before they are needed, in their senders' order: the senders' lists are
// computed here.
Code place_pipe(Code code, const PlanContext& c, const Program& p, int receive_ahead) {
  if (c.mesh.pp == 1 || !computes(c.key.kind)) return code;
  const Stages& stages = c.stages;
  Incoming incoming(c, p, stages);
  const Code out = with_sends(code, c, stages);
  const Actions actions(out);
  Insertions insertions(out.size());
  const auto ahead = size_t(receive_ahead);
  for (size_t k = 0; k < out.size(); ++k) {
    const Instr& i = out[k];
    size_t place = k;
    if (ahead > 0 && !actions.starts.empty())
      place = std::min(k, actions.starts[actions.of[k] >= ahead ? actions.of[k] - ahead : 0]);
    if (i.verb == Verb::forward) incoming.take({false, i.microbatch, i.block}, insertions.before(place));
    if (is_backward(i.verb)) incoming.take({true, i.microbatch, i.block + 1}, insertions.before(place));
  }
  return insertions.apply(out);
}

}  // namespace trainer
