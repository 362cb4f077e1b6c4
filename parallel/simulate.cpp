#include "parallel/simulate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/text.h"
#include "parallel/groups.h"
#include "parallel/schedules/schedules.h"

namespace trainer {
namespace {

bool sends(Verb v) { return v == Verb::send_act || v == Verb::send_grad; }
bool in_pipe(Verb v) { return v >= Verb::send_act && v <= Verb::recv_grad; }

// Groups of a rank, numbered over the world.
class Directory {
 public:
  struct Group {
    int id = 0, size = 1;
  };
  Group of(const Mesh& m, const Stages& stages, const Instr& i) {
    switch (i.verb) {
      case Verb::send_act:
      case Verb::send_grad:
      case Verb::recv_act:
      case Verb::recv_grad: {
        const bool gradient = i.lane == Lane::send_grad || i.lane == Lane::recv_grad;
        const int from = sends(i.verb) ? m.stage : i.peer, to = sends(i.verb) ? i.peer : m.stage;
        return number(pipe_group(m, from, to, gradient), Lane::compute);
      }
      case Verb::gather:
      case Verb::reduce: return number(group_of(m, stages, Axis::dp), i.lane);
      case Verb::tie: return number(group_of(m, stages, Axis::tied), i.lane);
      case Verb::agree:
      case Verb::vote: return number(group_of(m, stages, Axis::world), i.lane);
      default: return {};
    }
  }
  size_t count() const { return ids_.size(); }

 private:
  Group number(const GroupName& g, Lane lane) {
    if (g.size() == 1) return {};
    return {ids_.insert({{g.key, lane}, int(ids_.size())}).first->second, g.size()};
  }
  std::map<std::pair<std::string, Lane>, int> ids_;
};

// What must be alike where ranks meet. Both ends of a message name the same border.
std::tuple<int, int, int, int, int> subject(const Instr& i) {
  const bool gradient = i.verb == Verb::send_grad || i.verb == Verb::recv_grad;
  const int verb = in_pipe(i.verb) ? -1 - int(gradient) : int(i.verb);
  return {verb, i.microbatch, i.block, i.bucket, i.slice};
}

class Clock {
 public:
  Clock(const World& w, const PlanKey& key, const Durations& durations, Anchored anchored)
      : durations_(durations), anchored_(anchored), stages_(w.spec, w.model, w.schedule, key.microbatches) {
    ranks_.resize(w.programs.size());
    for (size_t r = 0; r < ranks_.size(); ++r) open(ranks_[r], w.meshes[r], *w.programs[r], key);
    meetings_.resize(directory_.count());
  }

  Timeline run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (Rank& r : ranks_)
        for (size_t l = 0; l < kLanes; ++l)
          while (advance(r, l)) progress = true;
    }
    Timeline t;
    for (Rank& r : ranks_) report(r, t);
    const double busy = std::accumulate(t.busy.begin(), t.busy.end(), 0.0) / double(t.busy.size());
    t.bubble = t.makespan > 0 ? 1 - busy / t.makespan : 0;
    return t;
  }

 private:
  struct Rank {
    const Plan* plan = nullptr;
    Mesh mesh;
    std::vector<double> done;                      // when each instruction was over; -1: not yet
    std::vector<std::pair<double, size_t>> begun;  // time, and a count that grows along every dependency
    std::vector<int> anchor;                       // the compute instruction before it in the list
    std::vector<Directory::Group> group;
    std::array<std::vector<InstrId>, kLanes> queue;
    std::array<size_t, kLanes> head{};
    std::array<double, kLanes> clock{};
    std::array<bool, kLanes> waiting{};
    double busy = 0;
  };
  struct Meeting {
    std::vector<std::pair<Rank*, size_t>> here;  // rank, lane
    InstrId first = 0;
    double start = 0;
  };

  void open(Rank& r, const Mesh& mesh, const Program& program, const PlanKey& key) {
    r.mesh = mesh;
    r.plan = find_plan(program, key);
    check(r.plan, Exit::spec, "[simulate] rank {} has no {} plan", mesh.rank(), name_of(key.kind));
    const Code& code = r.plan->code;
    r.done.assign(code.size(), -1);
    r.begun.resize(code.size());
    int anchor = -1;
    for (InstrId id = 0; id < code.size(); ++id) {
      r.queue[size_t(code[id].lane)].push_back(id);
      r.anchor.push_back(anchor);
      if (code[id].lane == Lane::compute) anchor = int(id);
      r.group.push_back(directory_.of(mesh, stages_, code[id]));
    }
  }
  void finish(Rank& r, size_t l, double start, double end) {
    const InstrId id = r.queue[l][r.head[l]++];
    r.done[id] = r.clock[l] = end;
    r.begun[id] = {start, count_};
    r.waiting[l] = false;
    if (l == size_t(Lane::compute) && r.plan->code[id].block >= 0) r.busy += end - start;
  }
  // Earliest start of an instruction, or -1 while it must wait.
  double ready(const Rank& r, InstrId id) const {
    const Instr& i = r.plan->code[id];
    double start = r.clock[size_t(i.lane)];
    for (uint32_t w = i.waits[0]; w < i.waits[1]; ++w) {
      const double d = r.done[r.plan->edges[w]];
      if (d < 0) return -1;
      start = std::max(start, d);
    }
    if (anchored_ == Anchored::yes && i.lane != Lane::compute && r.anchor[id] >= 0) {
      const auto anchor = size_t(r.anchor[id]);
      if (r.done[anchor] < 0) return -1;
      start = std::max(start, r.begun[anchor].first);
    }
    return start;
  }
  bool advance(Rank& r, size_t l) {
    if (r.waiting[l] || r.head[l] == r.queue[l].size()) return false;
    const InstrId id = r.queue[l][r.head[l]];
    const Instr& i = r.plan->code[id];
    const double start = ready(r, id);
    if (start < 0) return false;
    const Directory::Group group = r.group[id];
    if (group.size == 1) {
      ++count_;
      finish(r, l, start, start + durations_.of(r.mesh, i));
      return true;
    }
    meet(r, l, id, start, group);
    return true;
  }
  void meet(Rank& r, size_t l, InstrId id, double start, Directory::Group group) {
    const Instr& i = r.plan->code[id];
    Meeting& m = meetings_[size_t(group.id)];
    if (!m.here.empty()) {
      const Rank& other = *m.here[0].first;
      const Instr& theirs = other.plan->code[m.first];
      check(subject(i) == subject(theirs), Exit::spec, "[simulate] `{}` of rank {} meets `{}` of rank {}", to_text(i),
            r.mesh.rank(), to_text(theirs), other.mesh.rank());
    } else m.first = id;
    m.here.push_back({&r, l});
    m.start = std::max(m.start, start);
    r.waiting[l] = true;
    if (int(m.here.size()) < group.size) return;
    ++count_;  // those who meet share it
    const double end = m.start + durations_.of(r.mesh, i);
    for (const auto& [rank, lane] : m.here) finish(*rank, lane, m.start, end);
    m = {};
  }
  void report(const Rank& r, Timeline& t) const {
    auto& order = t.order.emplace_back(r.plan->code.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](InstrId a, InstrId b) { return r.begun[a] < r.begun[b]; });
    auto& spans = t.spans.emplace_back();
    Span blocks{std::numeric_limits<double>::infinity(), 0};
    for (size_t id = 0; id < r.done.size(); ++id) {
      spans.push_back({r.begun[id].first, r.done[id]});
      t.makespan = std::max(t.makespan, r.done[id]);
      if (const Instr& i = r.plan->code[id]; i.block >= 0 && i.lane == Lane::compute)
        blocks = {std::min(blocks.begin, spans.back().begin), std::max(blocks.end, spans.back().end)};
    }
    t.span = std::max(t.span, blocks.end - blocks.begin);
    t.busy.push_back(r.busy);
    for (size_t l = 0; l < kLanes; ++l)
      if (r.head[l] < r.queue[l].size())
        t.stuck += fmt::format(" rank {} at `{}`;", r.mesh.rank(), to_text(r.plan->code[r.queue[l][r.head[l]]]));
  }

  using Code = std::vector<Instr>;
  const Durations& durations_;
  const Anchored anchored_;
  const Stages stages_;
  Directory directory_;
  std::vector<Rank> ranks_;
  std::vector<Meeting> meetings_;
  size_t count_ = 0;
};

// Each replica counts its own slice of a bucket, and one of the stages that hold it.
void check_norms(const World& w, const PlanKey& key) {
  std::map<std::pair<int, int>, int> times;  // bucket, replica
  for (size_t r = 0; r < w.programs.size(); ++r)
    for (const Instr& i : find_plan(*w.programs[r], key)->code)
      if (i.verb == Verb::norm) ++times[{i.bucket, w.meshes[r].replica}];
  for (size_t b = 0; b < w.programs[0]->buckets.size(); ++b)
    for (int replica = 0; replica < w.meshes[0].dp; ++replica)
      if (const int n = times[{int(b), replica}]; n != int(trains(key.kind)))
        fail(Exit::spec, "[verify] the norm of bucket {} is counted {} times in replica {} of a {} step", b, n, replica,
             name_of(key.kind));
}

}  // namespace

World world_of_stages(const RunSpec& spec, const Model& model, const Mesh& first, const std::vector<Program>& stages) {
  World w{spec, model, find_schedule(spec.parallel.pipeline), {}, {}};
  for (size_t s = 0; s < stages.size(); ++s) {
    w.meshes.push_back(first.stage_alone(int(s)));
    w.programs.push_back(&stages[s]);
  }
  return w;
}

World world_of(const RunSpec& spec, const Model& model, const std::vector<Program>& all_ranks) {
  World w{spec, model, find_schedule(spec.parallel.pipeline), {}, {}};
  for (const Program& p : all_ranks) {
    w.meshes.push_back(Mesh::of(spec, int(all_ranks.size()), int(w.meshes.size())));
    w.programs.push_back(&p);
  }
  return w;
}

Timeline clock_world(const World& w, const PlanKey& key, const Durations& durations, Anchored anchored) {
  return Clock(w, key, durations, anchored).run();
}

Timeline clock_world(const World& w, const PlanKey& key, const Costs& costs, Anchored anchored) {
  const Stages stages(w.spec, w.model, w.schedule, key.microbatches);
  return clock_world(w, key, UniformDurations(stages, w.model, costs), anchored);
}

void verify_world(const World& w) {
  for (const auto& [key, plan] : w.programs.at(0)->plans) {
    const Timeline t = clock_world(w, key, Costs{});
    check(t.stuck.empty(), Exit::spec, "[verify] a {} step deadlocks:{}", name_of(key.kind), t.stuck);
    check_norms(w, key);
  }
}

}  // namespace trainer
