// The name of this machine, for messages and file names.
#pragma once
#include <unistd.h>

#include <string>

namespace trainer {

inline std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace trainer
