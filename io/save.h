// Saves the state of a world of ranks as a step, atomically: after a crash anywhere the directory holds the steps it
// held, or the new one too.
//
// Rank 0 makes the directory; each rank writes and syncs the shard of what it saves; all vote; rank 0 commits and
// tells.
#pragma once
#include <string>

#include "io/boxes.h"
#include "io/commit.h"
#include "io/manifest.h"
#include "io/votes.h"

namespace trainer {

struct SaveOptions {
  std::string directory;  // the same for all ranks, on a file system that they share
  Retention retention;
  int64_t generation = 1;  // of the run: one higher at each start; rank 0's counts
  int blocks = 8;          // in flight
};
struct SaveReport {
  std::string path;
  uint64_t bytes = 0, state_hash = 0;  // of all ranks
  double seconds = 0;
};

class Saver {
 public:
  explicit Saver(SaveOptions options, Votes votes = {})
      : options_(std::move(options)), votes_(std::move(votes)), staging_(options_.blocks) {}

  // Collective. The state must not change meanwhile. On Error(disk) of any rank all ranks throw it, what was begun is
  // removed, and earlier steps are untouched. Where a rank is gone, what was begun stays until the next save.
  SaveReport save(const StateView&, const RunState&);
  std::string_view engine_name() { return staging_.engine().name(); }

 private:
  Manifest write_shard(const std::string& directory, const StateView&, FailSite);
  std::string commit(const std::string& temporary, const std::vector<std::string>& parts, const RunState&);

  SaveOptions options_;
  Votes votes_;
  Staging staging_;
};

// In a shard a box that is not a whole tensor is called NAME[lo:hi,lo:hi].
std::string shard_tensor_name(const NamedBox&);
std::string shard_file_name(int rank);

}  // namespace trainer
