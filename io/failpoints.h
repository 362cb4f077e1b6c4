// Named places where a fault can be asked for, so that every crash a user may meet can be met in a test.
//
// TRAINER_FAIL="point@step=3,n=2:action" (several: separated by ';'); conditions: step, rank, n (the n-th matching
// visit alone; without it every one). Actions: kill, stop, exit, hang, delay=milliseconds; where the point honours them
// also eio, enospc, short=bytes, flip=bit, nan. A point that does not exist, or an action it does not honour, is
// refused.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trainer {

struct Failpoint {
  std::string_view name;
  std::string_view honours;  // beyond kill, stop, exit, hang and delay
  std::string_view place;
};
std::span<const Failpoint> failpoints();  // the table of `trainer --list-failpoints`

struct FailSite {
  int64_t step = -1;  // -1: not known here; a condition on it does not match
  int rank = 0;
};
struct Fault {  // what the caller has to pretend; empty nearly always
  int error = 0;
  std::optional<size_t> short_bytes;
  std::optional<uint64_t> flip_bit;
  bool nan = false;
};

// Replaces what is asked for. main passes TRAINER_FAIL before anything else; nothing is ever read from the environment
// here. Throws Error(usage).
void set_failpoints(std::string_view text);

// REQUIRES: `point` is in the table. Free of cost while nothing is asked for.
Fault failpoint(std::string_view point, FailSite site = {});

}  // namespace trainer
