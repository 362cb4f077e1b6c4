#include <map>
#include <set>

#include "core/model/model.h"
#include "parallel/passes/passes.h"

namespace trainer {
namespace {

struct Contribution {
  size_t at;  // instruction
  int microbatch;
  std::vector<ParamId> params;  // of this bucket
};

using ParamsByBucket = std::map<int, std::vector<ParamId>>;

std::vector<ParamsByBucket> params_of_blocks(const std::vector<BlockLayout>& layouts, const Program& p) {
  std::vector<ParamsByBucket> all;
  for (const BlockLayout& l : layouts) {
    auto& mine = all.emplace_back();
    for (ParamId id : l.params) mine[bucket_of(p, id)].push_back(id);
  }
  return all;
}

std::map<int, std::vector<Contribution>> contributions_of(const Code& code, const PlanContext& c, const Program& p) {
  const auto layouts = layouts_of(c.model);
  const auto params = params_of_blocks(layouts, p);
  std::map<int, std::vector<Contribution>> all;
  for (size_t k = 0; k < code.size(); ++k) {
    const Instr& i = code[k];
    const bool adds =
        i.verb == Verb::backward_weight || (i.verb == Verb::forward && layouts[size_t(i.block)].grads_in_forward);
    if (!adds) continue;
    for (const auto& [bucket, ids] : params[size_t(i.block)]) all[bucket].push_back({k, i.microbatch, ids});
  }
  return all;
}

}  // namespace

// ZeRO-2 and -3 reduce at the end of a run of contributions of one micro-batch, once every parameter of the bucket has
// contributed.
Code reduce(Code code, const PlanContext& c, const Program& p) {
  if (!trains(c.key.kind)) return code;
  Insertions insertions(code.size());
  for (const auto& [bucket, all] : contributions_of(code, c, p)) {
    std::set<ParamId> missing(p.buckets[size_t(bucket)].params.begin(), p.buckets[size_t(bucket)].params.end());
    for (size_t u = 0; u < all.size(); ++u) {
      for (ParamId id : all[u].params) missing.erase(id);
      const bool last = u + 1 == all.size(), run_ends = last || all[u + 1].microbatch != all[u].microbatch;
      if (!(c.spec.parallel.zero >= 2 ? last || (run_ends && missing.empty()) : last)) continue;
      insertions.after(all[u].at).push_back(on_bucket(Verb::reduce, Lane::reduce, bucket));
      missing.insert(p.buckets[size_t(bucket)].params.begin(), p.buckets[size_t(bucket)].params.end());
    }
  }
  return insertions.apply(code);
}

}  // namespace trainer
