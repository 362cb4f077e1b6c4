// Which cores a rank computes on, where several share a host.
#pragma once
#include <vector>

namespace trainer {

std::vector<int> allowed_cores();  // that this process may use
inline int available_cores() { return int(allowed_cores().size()); }
void use_cores(const std::vector<int>& cores);  // this thread, and all that it starts

// The cores of the rank with index `local_rank` among those of its host, from what each of them may use. Where the
// launcher has bound every rank to cores of its own these are it; otherwise all get the same number of cores, so that
// their plans are alike. More ranks than cores: all of them (nobody is pinned).
struct CoreShare {
  std::vector<int> cores;
  int ranks = 1;  // that use them
};
CoreShare divide_cores(const std::vector<std::vector<int>>& allowed, int local_rank);

}  // namespace trainer
