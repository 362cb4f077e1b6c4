// --ranks N: this binary starts itself N times on this host.
#pragma once

namespace trainer {

// True in a process that launch_local started.
bool is_launched();

// Starts the ranks with the same arguments `argv` and waits for them. Each is pinned to its share of the cores (where
// there are enough), dies with this process whatever kills it, and writes its stderr through it as "[rank 2] ...".
// SIGINT, SIGTERM and SIGUSR1 are handed on. When a rank has failed the others have 10 s to end by themselves.
// Returns the exit code: the first (in time) of a rank that failed for a reason of its own; else 15 where a rank was
// killed or lost another; else 17 where one was preempted; else 0.
int launch_local(int ranks, char** argv);

}  // namespace trainer
