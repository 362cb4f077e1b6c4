// A run's checkpoints: the state in the arenas of all ranks, and the directory it is saved to.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/rig.h"
#include "core/device/host_image.h"
#include "io/restore.h"
#include "io/save.h"
#include "parallel/comm/exchange.h"

namespace trainer {

struct Position {
  int64_t step = 0;    // finished
  int64_t tokens = 0;  // unmasked, trained on
  uint64_t data_hash = 0;
  uint64_t state_hash = 0;  // of what was loaded: the checkpoint's, which loading compares with
};

// A rank's state as checkpoints see it. Borrowed: what it is made of outlives the view.
StateView state_view(const Program&, const Model&, std::span<std::byte> arena);  // of a world of one
StateView state_view(const Planned&, std::span<std::byte> arena);                // of a world: who saves what

// What a user named as a checkpoint: a step directory, or a directory of steps, whose newest is meant.
Checkpoint open_named_checkpoint(const std::string& path, const Votes& = {});

// How checkpoints hear from the other ranks. Borrowed: the exchange outlives the votes.
Votes votes_by(Exchange&);

// All calls are collective: what one rank refuses is refused on all, with the same error.
class Checkpoints {
 public:
  // `tokenizer` is kept in every checkpoint (app/vocabulary.h).
  Checkpoints(Rig&, Exchange&, const std::string& directory, std::string tokenizer);
  // The newest one that is good on every rank, loaded; nothing where there is none. Throws Error(checkpoint) where
  // there are some and none is good.
  std::optional<Position> restore();
  const std::vector<Refusal>& refused() const { return refused_; }
  // The state before the first step (core/engine/initialise.h).
  void initialise(uint64_t seed);
  // Weights alone; `path` as in open_named_checkpoint.
  void load_weights(const std::string& path);
  // The device must be drained.
  SaveReport save(const Position&, int64_t samples);

 private:
  Rig& rig_;
  HostImage state_;
  StateView view_;
  Votes votes_;
  std::string directory_, tokenizer_;
  Saver saver_;
  std::vector<Refusal> refused_;
};

}  // namespace trainer
