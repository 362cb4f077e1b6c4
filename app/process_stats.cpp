#include "app/process_stats.h"

#include <sched.h>
#include <sys/resource.h>

#include <fstream>
#include <string>

namespace trainer {

size_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return size_t(std::stoull(line.substr(6))) * 1024;
  return 0;
}
int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}
int available_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace trainer
