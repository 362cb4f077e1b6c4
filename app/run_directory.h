// What a run leaves behind, and the lock that keeps a second run out of it.
#pragma once
#include <memory>
#include <string>

#include "core/spec/run_spec.h"

namespace trainer {

class RunDirectory {
 public:
  // Creates log.dir and the checkpoint directory, proves that they can be written, and locks them: one rank of a run
  // does (`owner`), the others follow it. Throws Error(in_use) naming host and process of the other run, Error(disk)
  // where nothing can be written.
  RunDirectory(const RunSpec&, bool owner);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  const std::string& path() const { return log_; }
  const std::string& checkpoints() const { return checkpoints_; }
  std::string file(const std::string& name) const { return log_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const;

 private:
  int lock(const std::string& dir) const;
  std::string log_, checkpoints_;
  int log_lock_ = -1, checkpoint_lock_ = -1;
};

}  // namespace trainer
