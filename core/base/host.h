// This machine's names.
#pragma once
#include <string>

namespace trainer {

std::string host_name();  // for messages and file names

// The same for processes that can reach each other by process number, and so map each other's memory: host name, boot,
// pid namespace.
std::string machine_id();

}  // namespace trainer
