// Traces for Perfetto and chrome://tracing: a process per rank and a thread per lane, alike for a plan that the clock
// ran and for one that a run did, so that one can be laid beside the other.
#pragma once
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/plan/mesh.h"
#include "core/plan/plan.h"

namespace trainer {

// The events of a rank's plan: JSON objects, separated by commas. `spans`: by instruction. A call's category is its verb,
// its name the verb and, where it has them, micro-batch.chunk (".0" is left out), "block N" and "bucket N".
std::string trace_events(const Mesh& rank, const Plan&, std::span<const Span> spans);
// The Trace Event Format's object with the events of all ranks.
void write_trace(std::ostream&, const std::vector<std::string>& events_of_ranks);

}  // namespace trainer
