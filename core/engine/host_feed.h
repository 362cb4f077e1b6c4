// A feed whose batches the host writes: straight into the arena where it reaches it, by way of staging memory
// otherwise.
#pragma once
#include "core/engine/feed.h"
#include "core/plan/plan.h"

namespace trainer {

class HostFeed : public Feed {
 public:
  // For devices whose arena the host does not reach: memory that both reach, staging_bytes() of it, in as many parts as
  // steps take turns.
  void stage_in(std::span<std::byte> staging, int turns) {
    staging_ = staging;
    turns_ = turns;
  }
  void fill(Stream&, Split, int64_t step, int microbatch, const Batch&) final;
  void stage(Split, int64_t step, int microbatch, const Batch&) final;

 protected:
  // Writes the non-empty fields of `batch`. Called in the order of fill(): on the lane's thread, or, for a staged
  // batch, by fill() itself.
  virtual void write(Split, int64_t step, int microbatch, const Batch& batch) = 0;

 private:
  Batch staged(int64_t step, int microbatch, const Batch&) const;
  std::span<std::byte> staging_;
  int turns_ = 1;
};

// Steps that are issued before the one before them is over take turns in the staging memory.
inline int staging_turns(const Program& p) { return updates_ahead(p) ? 2 : 1; }
// Every micro-batch of a step has a place of its own: the host waits once per step, so none is overwritten while it is
// read. `rows` are those of a micro-batch.
size_t staging_bytes(const Program&, int64_t rows);

}  // namespace trainer
