// Finds, checks and loads steps. Everything is read as boxes: the layout that saved does not matter. What takes Votes
// is collective: each rank loads what it holds, and a step that one refuses is refused for all. Errors:
// Error(checkpoint).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "io/boxes.h"
#include "io/commit.h"
#include "io/manifest.h"
#include "io/votes.h"

namespace trainer {

struct Checkpoint {
  std::string path;
  Manifest manifest;
};

// The manifest verifies, and every file is there with its size. The tensors' bytes are checked when they are read.
Checkpoint open_checkpoint(const std::string& step_directory);
Checkpoint open_checkpoint(const std::string& step_directory, const Votes&);  // the same one on all ranks

struct LoadOptions {
  bool weights_only = false;  // moments are left as they are
  int blocks = 8;             // in flight
};
// Fills the view from the checkpoint, converting where the types differ, then makes the compute weights. Every block
// that is read is checked first, and the state's hash afterwards unless a type differed; on an error the view holds
// garbage.
void load_state(const Checkpoint&, const StateView&, const LoadOptions& = {}, const Votes& = {});

// One whole tensor as it is stored, checked.
std::vector<std::byte> read_tensor(const Checkpoint&, const std::string& name);

struct Refusal {
  int64_t step = 0;
  std::string why;
};
struct Resumed {
  Checkpoint checkpoint;
  std::vector<Refusal> refused;  // newer ones
};
// Loads the newest step of the directory that is good; nothing where the directory holds no step at all. Throws where
// it holds steps and none is good.
std::optional<Resumed> resume_newest(const std::string& directory, const StateView&, const Votes& = {});

struct Problem {
  std::string file, tensor;
  uint64_t offset = 0;
  std::string what;
};
// Reads everything; empty: all is well.
std::vector<Problem> verify_checkpoint(const std::string& step_directory);

}  // namespace trainer
