#include <algorithm>
#include <iterator>

#include "core/model/model.h"
#include "core/plan/buckets.h"
#include "parallel/passes/passes.h"

namespace trainer {
namespace {

// ZeRO-1 and -2: each rank has updated its slice of a weight that all hold whole.
bool updates_a_slice(const Program& p, int bucket) {
  const StateSlot &weight = *find_state(p, bucket, int(Role::weight)),
                  &moment = *find_state(p, bucket, int(Role::moment1));
  return moment.end - moment.begin < weight.end - weight.begin;
}

Instr on_ballot(Verb v, Lane lane, Ballot b) { return {.verb = v, .lane = lane, .slice = int16_t(b)}; }
void add_vote(Code& code, Code::iterator at, Ballot b) {
  const Instr pair[] = {on_ballot(Verb::cast, Lane::compute, b), on_ballot(Verb::vote, Lane::vote, b)};
  code.insert(at, std::begin(pair), std::end(pair));
}

// The tokens are known once the last loss is. A stage that computes none votes as late all the same: a cast waits for
// the vote of the step before, which by then is over.
void vote_on_tokens(Code& code) {
  const auto last = std::find_if(code.rbegin(), code.rend(), [](const Instr& i) { return i.verb == Verb::forward; });
  add_vote(code, last.base(), Ballot::tokens);
}

Code take_back(const Program& p, const std::vector<int>& here) {
  Code code;
  for (int b : here) {
    code.push_back(on_bucket(Verb::undo, Lane::compute, b));
    if (updates_a_slice(p, b)) code.push_back(on_bucket(Verb::gather, Lane::gather, b));
  }
  return code;
}

}  // namespace

Code update(Code code, const PlanContext& c, const Program& p) {
  if (c.key.kind == StepKind::snapshot) return code;
  const Stages& stages = c.stages;
  std::vector<int> here;
  for (int b = 0; b < int(p.buckets.size()); ++b)
    if (find_state(p, b, int(Role::weight))) here.push_back(b);
  if (c.key.kind == StepKind::undo) return take_back(p, here);
  const bool train = trains(c.key.kind), ahead = c.key.kind == StepKind::train_ahead;
  if (ahead) vote_on_tokens(code);
  // A tie stands behind every reduce of its stage: the head's stage could be done with it early, the embedding's only
  // at the end, and a lane that waits for the other stage in mid-step holds back the reduces, their memory, the
  // backward and so the other stage.
  for (int b : here)
    if (train && p.buckets[size_t(b)].tied) code.push_back(on_bucket(Verb::tie, Lane::reduce, b));
  for (int b : here)
    if (train && counts_bucket(stages, c.mesh, p.buckets[size_t(b)]))
      code.push_back(on_bucket(Verb::norm, Lane::compute, b));
  if (ahead) {
    code.push_back({.verb = Verb::trust});  // before the vote on this step: it asks what was found of those before
    add_vote(code, code.end(), Ballot::outcome);
  } else code.push_back({.verb = Verb::agree});
  if (!train) return code;
  for (int b : here) {
    if (ahead) code.push_back(on_bucket(Verb::keep, Lane::compute, b));
    code.push_back(on_bucket(Verb::update, Lane::compute, b));
    if (updates_a_slice(p, b)) code.push_back(on_bucket(Verb::gather, Lane::gather, b));
  }
  return code;
}

}  // namespace trainer
