// Where the time of a step went, and what it moved: by the compute lane's own account and the communicators'.
#pragma once
#include <chrono>

#include "app/journal.h"
#include "core/device/device.h"
#include "parallel/comm/traffic.h"

namespace trainer {

class StepClock {
 public:
  // Both must outlive it.
  StepClock(Device& device, const Traffic& traffic) : device_(device), traffic_(traffic) {}
  // A step begins: what came before (an evaluation, a save) belongs to none.
  void restart();
  // Ends a step and begins the next: fills the record's step_seconds, time and comm.
  void split(StepRecord&);

 private:
  struct Counts {
    LaneTimes compute;
    double in_collectives = 0;  // of the compute lane, in seconds
    CommBytes moved;
  };
  Counts count() const;

  Device& device_;
  const Traffic& traffic_;
  Counts before_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace trainer
