// `trainer bench comm`: what collectives cost between processes of this host, beside what its memory allows and, where
// asked for, beside other libraries in the same run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

struct CommBenchOptions {
  int ranks = 2;
  std::string max = "256MiB";        // the largest tensor
  std::vector<std::string> against;  // "openmpi", "gloo": programs that scripts/bench_comm.sh builds beside this binary
};

struct CommFigure {
  std::string op;      // "all_reduce f32"
  int64_t bytes = 0;   // of the full tensor
  double seconds = 0;  // of the fastest of several series, the slowest rank's
  double bus = 0;      // bytes per second on a bus, by NCCL's convention (nccl-tests, doc/PERFORMANCE.md); 0: no bytes
  double roof = 0;     // the same, where memory does nothing but move the bytes that the operation must move
  std::vector<double> others;  // seconds of what `against` names, in its order; 0: it has none
};

// Forks the ranks, each pinned to a core where there are enough. REQUIRES that this process has no other threads yet.
// Throws Error(usage) for options that make no sense, Error(rank) where a rank failed.
std::vector<CommFigure> bench_comm(const CommBenchOptions&);
void print_comm_figures(const std::vector<CommFigure>&, const CommBenchOptions&, bool json);

}  // namespace trainer
