#include "core/plan/buckets.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/model/model.h"

namespace trainer {
namespace {

DType dtype_of(Precision p) { return p == Precision::bf16 ? DType::bf16 : DType::f32; }

struct Holders {  // of a parameter
  int layer = 0;  // of the first block that names it
  std::set<int> stages;
};
std::vector<std::pair<ParamId, Holders>> holders_of(const Model& model, const Stages& stages) {
  std::vector<std::pair<ParamId, Holders>> all;
  std::map<ParamId, size_t> place;
  for (size_t b = 0; b < model.blocks.size(); ++b)
    for (ParamId id : model.blocks[b]->layout().params) {
      const auto [it, fresh] = place.insert({id, all.size()});
      if (fresh) all.push_back({id, {model.layer[b], {}}});
      all[it->second].second.stages.insert(stages.stage_of(int(b)));
    }
  return all;
}

// Those that decay first, so that a bucket is updated in one go.
void place_params(Bucket& b, const Model& model) {
  std::stable_partition(b.params.begin(), b.params.end(), [&](ParamId id) { return model.params[id].decays; });
  for (const ParamId id : b.params) {
    b.begin.push_back(b.size);
    b.size += model.params[id].local.elements();
    if (model.params[id].decays) b.decayed = b.size;
  }
}

class StateMaker {
 public:
  StateMaker(Program& p, const PlanContext& c, const Stages& stages) : p_(p), c_(c), stages_(stages) {}
  void bucket(int b, const StateCopies& copies) {
    const int64_t zero = c_.spec.parallel.zero;
    const DType compute = compute_dtype(c_.spec.precision);
    slot(b, int(Role::weight), compute, zero < 3);
    if (compute != DType::f32) slot(b, int(Role::master), DType::f32, zero == 0);
    slot(b, int(Role::moment1), DType::f32, zero == 0);
    slot(b, int(Role::moment2), DType::f32, zero == 0);
    for (Role r : saved_roles(c_.spec.precision)) {
      if (copies.staging && counts_bucket(stages_, c_.mesh, p_.buckets[size_t(b)]))
        slot(b, kStaging + int(r), DType::f32, false);
      if (copies.previous) slot(b, kPrevious + int(r), DType::f32, zero == 0);
    }
  }

 private:
  void slot(int b, int index, DType dtype, bool whole) {
    const int64_t padded = p_.buckets[size_t(b)].padded, n = whole ? padded : padded / c_.mesh.shards;
    const int64_t begin = whole ? 0 : n * c_.mesh.shard();
    p_.state.push_back({int16_t(b), int16_t(index), dtype, 0, size_t(n) * size_of(dtype), begin, begin + n});
  }
  Program& p_;
  const PlanContext& c_;
  const Stages& stages_;
};

}  // namespace

DType compute_dtype(const PrecisionSpec& p) { return dtype_of(p.compute); }
DType gradient_dtype(const PrecisionSpec& p) { return dtype_of(p.gradients); }

std::vector<Role> saved_roles(const PrecisionSpec& p) {
  return {p.compute == Precision::fp32 ? Role::weight : Role::master, Role::moment1, Role::moment2};
}

bool counts_bucket(const Stages& stages, const Mesh& mesh, const Bucket& b) {
  return !b.tied || mesh.stage == stages.owner(0).stage;
}

void make_buckets(Program& p, const PlanContext& c, const Stages& stages, StateCopies copies) {
  check(c.mesh.cp == 1, Exit::spec, "[plan] parallel.cp {}: not built yet, use 1", c.mesh.cp);
  std::map<std::pair<int, bool>, size_t> place;  // layer, tied
  std::vector<std::set<int>> on;                 // stages that hold the bucket
  for (const auto& [id, holders] : holders_of(c.model, stages)) {
    const bool tied = holders.stages.size() > 1;
    const auto [it, fresh] = place.insert({{holders.layer, tied}, p.buckets.size()});
    if (fresh) {
      p.buckets.emplace_back();
      p.buckets.back().tied = tied;
      p.buckets.back().reduce = dtype_of(c.spec.precision.reduce);
      on.emplace_back();
    }
    p.buckets[it->second].params.push_back(id);
    on[it->second].insert(holders.stages.begin(), holders.stages.end());
  }
  StateMaker state(p, c, stages);
  for (size_t b = 0; b < p.buckets.size(); ++b) {
    Bucket& k = p.buckets[b];
    place_params(k, c.model);
    k.padded = (k.size + c.mesh.shards - 1) / c.mesh.shards * c.mesh.shards;
    if (on[b].contains(c.mesh.stage)) state.bucket(int(b), copies);
  }
}

void move_to_replica(Program& p, const Mesh& mesh) {
  for (StateSlot& s : p.state) {
    const int64_t n = s.end - s.begin;
    if (n == p.buckets[size_t(s.bucket)].padded) continue;
    s.begin = n * mesh.shard();
    s.end = s.begin + n;
  }
}

}  // namespace trainer
