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
  struct Counts {  // seconds of the compute lane, and bytes
    double compute = 0, data_wait = 0;
    CommSeconds exposed;
    CommBytes moved;
  };
  Counts count() const;

  Device& device_;
  const Traffic& traffic_;
  Counts before_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace trainer
