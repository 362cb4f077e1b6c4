#include "app/cores.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "core/base/error.h"

namespace trainer {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  check(sched_getaffinity(0, sizeof set, &set) == 0, Exit::device, "cannot ask which cores this process may use: {}",
        std::strerror(errno));
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

void use_cores(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  check(sched_setaffinity(0, sizeof set, &set) == 0, Exit::device, "cannot pin to {} cores: {}", cores.size(),
        std::strerror(errno));
}

CoreShare divide_cores(const std::vector<std::vector<int>>& allowed, int local_rank) {
  std::set<int> all;
  size_t sum = 0;
  for (const std::vector<int>& cores : allowed) {
    all.insert(cores.begin(), cores.end());
    sum += cores.size();
  }
  if (sum == all.size()) return {allowed[size_t(local_rank)], 1};  // disjoint
  const std::vector<int> shared(all.begin(), all.end());
  const size_t each = shared.size() / allowed.size();
  if (each == 0) return {shared, int(allowed.size())};
  const auto first = shared.begin() + ptrdiff_t(each) * local_rank;
  return {{first, first + ptrdiff_t(each)}, 1};
}

}  // namespace trainer
