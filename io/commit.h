// The last part of a save: from written shards to a durable step, and what old steps make room. Errors: Error(disk).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/failpoints.h"
#include "io/manifest.h"

namespace trainer {

struct StepPath {
  int64_t step = 0;
  std::string path;
};
// Committed steps by name alone, newest first. A directory that does not exist holds none.
std::vector<StepPath> list_steps(const std::string& directory);

// The highest generation of which the directory bears a trace; 0 where there is none.
int64_t newest_generation(const std::string& directory);

std::string step_path(const std::string& directory, int64_t step);
// directory/step-N.tmp-GENERATION, new and empty.
std::string make_step_directory(const std::string& directory, int64_t step, int64_t generation);

// Writes the manifest into `temporary` and gives the step its name, in an order that a crash anywhere survives. A step
// of that name that was there before (refused at the resume, or saved twice) is replaced in one move.
void commit_step(const std::string& directory, const std::string& temporary, const Manifest&, FailSite);

// Removes all but the `keep` newest good steps and those divisible by `keep_every`, and what crashed saves left. A step
// is moved out of the way before it is deleted. Removes nothing but leftovers while the newest step is not good.
struct Retention {
  int64_t keep = 3;
  std::optional<int64_t> keep_every;
};
void collect_garbage(const std::string& directory, const Retention&, FailSite);

}  // namespace trainer
