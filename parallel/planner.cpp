#include "parallel/planner.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/engine/engine.h"
#include "core/engine/preparing.h"
#include "core/plan/bind.h"
#include "core/plan/buckets.h"
#include "core/plan/layout.h"
#include "core/plan/link.h"
#include "core/plan/text.h"
#include "core/plan/verify.h"
#include "parallel/meter_groups.h"
#include "parallel/passes/passes.h"
#include "parallel/schedules/schedules.h"
#include "parallel/simulate.h"

namespace trainer {
namespace {

// A ring's record: its header and alignment, beside the arguments the meter counts.
constexpr size_t kCommandOverhead = 64;

class NoFeed final : public Feed {
 public:
  void fill(Stream&, Split, int64_t, int, const Batch&) override {}
  void stage(Split, int64_t, int, const Batch&) override {}
};

// A device, and who counts the collectives that nobody answers.
struct Alone {
  Device& device;
  MeterCounts& counts;
};
void issue_alone(const Program& p, const PlanRequest& r, const Mesh& mesh, const PlanKey& key, const Alone& to) {
  const Stages stages(r.spec, r.model, find_schedule(r.spec.parallel.pipeline), key.microbatches);
  MeterGroups groups(to.counts, mesh, stages);
  NoFeed feed;
  Engine(p, r.spec, mesh, r.model, {to.device, groups, feed}).issue_plan(key, Control{});
}

class Planner {
 public:
  explicit Planner(const PlanRequest& r) : request_(r), schedule_(find_schedule(r.spec.parallel.pipeline)) {
    for (const PlanKey& k : r.keys) {
      check(k.seq_len == r.spec.data.seq_len, Exit::spec,
            "[planner] a plan for {} tokens, but the model is built for {}", k.seq_len, r.spec.data.seq_len);
      stages_.emplace_back(r.spec, r.model, schedule_, k.microbatches);
    }
  }

  // Of replica 0 of every stage.
  std::vector<Program> stages() {
    std::vector<Program> all;
    for (int s = 0; s < mesh(0).pp; ++s) all.push_back(draft(mesh(s)));
    put_in_one_order(all);
    for (Program& p : all) {
      layout(p, Reuse::yes);
      link(p);
    }
    meter(all);
    return all;
  }
  Mesh mesh(int stage) const { return Mesh::of(request_.spec, request_.world, 0).at_stage(stage); }
  World world(const std::vector<Program>& stages) const {
    return world_of_stages(request_.spec, request_.model, mesh(0), stages);
  }

 private:
  Program draft(const Mesh& mesh) const {
    const auto any = [&](auto... kinds) {
      return std::any_of(request_.keys.begin(), request_.keys.end(),
                         [&](const PlanKey& k) { return ((k.kind == kinds) || ...); });
    };
    Program p;
    make_buckets(
        p, context(mesh, 0), stages_.at(0),
        {.staging = any(StepKind::train_and_snapshot, StepKind::snapshot), .previous = any(StepKind::train_ahead)});
    for (size_t k = 0; k < request_.keys.size(); ++k) {
      const PlanContext c = context(mesh, k);
      Code code;
      for (CodePass pass : code_passes()) code = pass(std::move(code), c, p);
      p.plans.push_back({c.key, trainer::bind(std::move(code), c, p)});
    }
    return p;
  }
  void put_in_one_order(std::vector<Program>& all) const {
    for (Program& p : all) {
      layout(p, Reuse::no);
      link(p);
    }
    for (size_t k = 0; k < request_.keys.size(); ++k) {
      const Timeline t = clock_world(world(all), request_.keys[k], Costs{}, Anchored::yes);
      check(t.stuck.empty(), Exit::spec, "[planner] the schedule itself deadlocks:{}", t.stuck);
      for (size_t s = 0; s < all.size(); ++s) {
        Code& code = all[s].plans[k].second.code;
        Code sorted;
        for (InstrId id : t.order[s]) sorted.push_back(code[id]);
        code = std::move(sorted);
      }
    }
  }
  // Scratch, rings, and one hash of what every stage does. Scratch is not part of it: it depends on a rank's threads,
  // and ranks of one world may have different cores.
  void meter(std::vector<Program>& all) const {
    uint64_t hash = kHashSeed;
    for (size_t s = 0; s < all.size(); ++s) {
      std::array<size_t, kLanes> scratch{};
      std::string trace;
      for (const PlanKey& key : request_.keys) {
        const MeterCounts counts = measure(all[s], request_, mesh(int(s)), key);
        for (size_t l = 0; l < kLanes; ++l) {
          scratch[l] = std::max(scratch[l], counts.scratch[l]);
          all[s].ring_bytes[l] =
              std::max(all[s].ring_bytes[l], counts.argument_bytes[l] + counts.commands[l] * kCommandOverhead);
        }
        trace += counts.trace;
      }
      hash = hash_text(trace, hash_text(to_text(all[s]), hash));
      place_scratch(all[s], scratch);
    }
    for (Program& p : all) p.hash = hash;
  }

  PlanContext context(const Mesh& mesh, size_t key) const {
    return {request_.spec, mesh, request_.model, request_.keys[key], stages_[key]};
  }

  const PlanRequest& request_;
  const Schedule schedule_;
  std::vector<Stages> stages_;  // per key
};

}  // namespace

MeterCounts measure(const Program& p, const PlanRequest& r, const Mesh& mesh, const PlanKey& key) {
  MeterDevice device;
  issue_alone(p, r, mesh, key, {device, device.counts()});
  return device.counts();
}

void prepare(const Program& p, const PlanRequest& r, const Mesh& mesh, Device& device) {
  PreparingDevice preparing(device);
  MeterCounts unread;
  for (const PlanKey& key : r.keys) issue_alone(p, r, mesh, key, {preparing, unread});
}

std::vector<Program> make_stage_programs(const PlanRequest& r) { return Planner(r).stages(); }

Program program_of_rank(const PlanRequest& r, const std::vector<Program>& of_stages, int rank) {
  const Mesh mesh = Mesh::of(r.spec, r.world, rank);
  verify_world(world_of_stages(r.spec, r.model, Mesh::of(r.spec, r.world, 0), of_stages));
  Program p = of_stages[size_t(mesh.stage)];
  move_to_replica(p, mesh);
  verify(p);
  return p;
}

std::vector<Program> make_programs(const PlanRequest& r) {
  const std::vector<Program> stages = Planner(r).stages();
  std::vector<Program> all;
  for (int rank = 0; rank < r.world; ++rank) {
    const Mesh mesh = Mesh::of(r.spec, r.world, rank);
    all.push_back(stages[size_t(mesh.stage)]);
    move_to_replica(all.back(), mesh);
  }
  return all;
}

}  // namespace trainer
