// What no single key can know: defaults that follow from other keys, and combinations that are impossible.
#pragma once
#include <set>
#include <string>

#include "core/spec/read.h"

namespace trainer {

// Keys in `bad` have been reported already; rules that involve one are skipped, so that one mistake gives one message.
// Appends to loaded.problems.
void complete_and_check(LoadedSpec& loaded, const std::set<std::string>& bad);

// Where a key is given; else its section; else the start of the file.
Origin position_of(const LoadedSpec&, const std::string& path);

}  // namespace trainer
