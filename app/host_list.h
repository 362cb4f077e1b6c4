// Slurm's compressed lists, expanded here so that nothing has to ask scontrol.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// "node[001-003,007],gpu5" -> node001 node002 node003 node007 gpu5, as `scontrol show hostnames` of Slurm 22.05 does:
// leading zeros stay; of several bracket groups the last runs fastest, then the first ("r[1-2]n[1-2]": r1n1 r1n2 r2n1
// r2n2); text after the last group is refused. Unlike scontrol, empty entries and unclosed brackets are refused too.
// Throws Error(usage).
std::vector<std::string> expand_host_list(std::string_view text);

// SLURM_STEP_TASKS_PER_NODE: "2(x3),1" -> 2 2 2 1. Throws Error(usage).
std::vector<int> expand_task_counts(std::string_view text);

}  // namespace trainer
