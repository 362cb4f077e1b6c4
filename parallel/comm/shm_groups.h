// The groups of a rank whose world lies on one host. Opening one does not communicate: where its words lie follows from
// its axis and lane.
#pragma once
#include <array>
#include <map>
#include <memory>

#include "parallel/comm/self.h"
#include "parallel/comm/shm_comm.h"

namespace trainer {

class ShmGroups final : public Groups {
 public:
  // All must live as long. Calls come from one host thread.
  ShmGroups(ShmWorld& world, const Mesh& mesh, const Stages& stages, Traffic& traffic)
      : world_(world), mesh_(mesh), stages_(stages), traffic_(traffic) {}
  Comm& on(Axis, Lane) override;
  Comm& pipe(int from_stage, int to_stage, bool gradient) override;
  // Where this rank's words of a communicator lie.
  ShmPlace place(Axis, Lane) const;
  ShmPlace pipe_place(int from_stage, int to_stage, bool gradient) const;

 private:
  ShmWorld& world_;
  const Mesh mesh_;
  const Stages& stages_;
  Traffic& traffic_;
  SelfComm self_;
  std::array<std::array<Comm*, kLanes>, kAxes> found_{};
  std::map<std::array<int, 3>, Comm*> pipes_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

}  // namespace trainer
