// A trace of one step of all ranks (log.trace).
#pragma once
#include <string>
#include <vector>

#include "core/plan/mesh.h"
#include "core/plan/plan.h"
#include "parallel/comm/exchange.h"

namespace trainer {

// Collective over the exchange: every rank gives when the instructions of its plan ran, and gets the trace's text.
// Clocks of hosts differ, so ranks are laid beside each other by the end of the step's `agree`, which all leave
// together.
std::string trace_of_step(Exchange&, const Mesh&, const Plan&, std::vector<Span>);

}  // namespace trainer
