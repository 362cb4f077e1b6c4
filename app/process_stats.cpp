#include "app/process_stats.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace trainer {

namespace {

// A line of /proc/self/status in kB; 0: there is none.
size_t status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return size_t(std::stoull(line.substr(name.size()))) * 1024;
  return 0;
}

}  // namespace

size_t peak_rss_bytes() { return status_bytes("VmHWM:"); }
size_t shared_rss_bytes() { return status_bytes("RssShmem:"); }
int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

}  // namespace trainer
