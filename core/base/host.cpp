#include "core/base/host.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace trainer {

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string machine_id() {
  std::string boot;
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::getline(in, boot);
  std::array<char, 64> pid_namespace{};
  if (readlink("/proc/self/ns/pid", pid_namespace.data(), pid_namespace.size() - 1) < 0) pid_namespace[0] = '?';
  return host_name() + " " + boot + " " + pid_namespace.data();
}

}  // namespace trainer
