// Saves one rank's state as a step, atomically: after a crash anywhere the directory holds the steps it held, or the
// new one too.
#pragma once
#include <string>

#include "io/boxes.h"
#include "io/commit.h"
#include "io/manifest.h"

namespace trainer {

struct SaveOptions {
  std::string directory;
  Retention retention;
  int64_t generation = 1;  // of the process: one higher at each start
  int blocks = 8;          // in flight
};
struct SaveReport {
  std::string path;
  uint64_t bytes = 0, state_hash = 0;
  double seconds = 0;
};

class Saver {
 public:
  explicit Saver(SaveOptions options) : options_(std::move(options)), staging_(options_.blocks) {}

  // The state must not change meanwhile. On Error(disk) what was begun is removed, and earlier steps are untouched.
  SaveReport save(const StateView&, const RunState&);
  std::string_view engine_name() { return staging_.engine().name(); }

 private:
  Manifest write_shards(const std::string& directory, const StateView&, const RunState&);

  SaveOptions options_;
  Staging staging_;
};

// In a shard a box that is not a whole tensor is called NAME[lo:hi,lo:hi].
std::string shard_tensor_name(const NamedBox&);
std::string shard_file_name(int rank);

}  // namespace trainer
