// A step that updates before the world agrees: what it says to the world meanwhile, and what takes its update back.
#include "core/engine/engine.h"
#include "core/ops/ops.h"
#include "core/plan/buckets.h"

namespace trainer {

// An account of the compute lane's time is told with an event for the host, which in this step is another lane's.
void Engine::cast(const Call& call) {
  launch(call.lane, Copy{ballot(Ballot(call.instr.slice)), outcome()});
  if (Ballot(call.instr.slice) == Ballot::outcome) call.lane.record_for_host();
}

void Engine::vote(const Call& call) {
  const Tensor sum = ballot(Ballot(call.instr.slice));
  const bool last = Ballot(call.instr.slice) == Ballot::outcome;
  if (last) add_notes(call, sum);
  to_.groups.on(Axis::world, call.instr.lane).all_reduce(call.lane, sum);
  if (!last) return;
  launch(call.lane, Judge{verdict(), sum, call.control.max_norm});
  launch(call.lane, Tell{&page().outcome, sum});
}

void Engine::keep(const Call& call) {
  for (Role r : saved_roles(spec_.precision)) {
    const auto [now, previous] = with_previous(call, r);
    launch(call.lane, SetAside{previous, now, control()});
  }
}

void Engine::undo(const Call& call) {
  for (Role r : saved_roles(spec_.precision)) {
    const auto [now, previous] = with_previous(call, r);
    launch(call.lane, Copy{now, previous});
  }
  if (const Tensor master = updated(call, find(call, SlotClass::state, int(Role::master))))
    launch(call.lane, Copy{updated(call, find(call, SlotClass::state, int(Role::weight))), master});
}

std::pair<Tensor, Tensor> Engine::with_previous(const Call& call, Role r) {
  return {updated(call, find(call, SlotClass::state, int(r))),
          updated(call, find(call, SlotClass::state, kPrevious + int(r)))};
}

Tensor Engine::ballot(Ballot b) const {
  return fixed(program_.ballot_offset[size_t(b)], DType::f64, sizeof(Outcome) / 8);
}
Tensor Engine::verdict() const { return fixed(program_.verdict_offset, DType::f64, 1); }

}  // namespace trainer
