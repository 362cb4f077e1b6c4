// Communication between ranks, as the plan sees it: a group of one is a group, and no caller asks how many there are.
#pragma once
#include "core/device/device.h"

namespace trainer {

// shard: ranks of a replica group that hold slices of the same state (ZeRO); replica: those that hold the same slice.
// kv: neighbours on tp that hold the same kv head. tied: the stages that share the embedding.
enum class Axis : uint8_t { pp, dp, cp, tp, kv, ep, dp_cp, expert_dp, shard, replica, tied, world };
inline constexpr int kAxes = 12;
static_assert(kAxes <= kPlanAccount);  // an axis has an account of a lane's time
std::string_view name_of(Axis);

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  enum class Reduce : uint8_t { sum, max };
  // In place when `shard` is this rank's slice of `full`: then a group of one does nothing.
  virtual void all_gather(Stream&, Tensor shard, Tensor full) = 0;
  virtual void reduce_scatter(Stream&, Tensor full, Tensor shard) = 0;
  virtual void all_reduce(Stream&, Tensor, Reduce = Reduce::sum) = 0;
  // Row counts are device tensors, for the host must not wait for them; rows are bounded at plan time.
  virtual void all_to_all_v(Stream&, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows, int64_t max_rows) = 0;
  virtual void send(Stream&, Tensor, int to) = 0;
  virtual void recv(Stream&, Tensor, int from) = 0;
  virtual void begin_group(Stream&) = 0;  // sends and receives between begin and end are one operation
  virtual void end_group(Stream&) = 0;
  virtual void barrier(Stream&) = 0;
  virtual void abort() noexcept = 0;  // from any thread
};

// Bytes by axis and lane.
using MovedBytes = std::array<std::array<int64_t, kLanes>, kAxes>;

class Groups {
 public:
  virtual ~Groups() = default;
  virtual Comm& on(Axis, Lane) = 0;
  // Both ends of a pipe message are on different lanes (send_act here, recv_act there), so the pipe has a communicator
  // of two ranks per directed pair of stages and kind; `from` is its rank 0, `to` its rank 1.
  // `gradient`: on the lanes of gradients (core/plan/stages.h).
  virtual Comm& pipe(int from_stage, int to_stage, bool gradient) = 0;
  // Throws Error(rank) where the world has failed and a lane could not say so: asked after the host waited, before it
  // uses what it waited for.
  virtual void check_alive() const {}
  // What this rank moved since the groups were opened, where they count it when an operation is issued. What a graph
  // moves when it is launched again passes by them: `add_moved` says it.
  virtual MovedBytes moved() const { return {}; }
  virtual void add_moved(const MovedBytes&) {}
};

}  // namespace trainer
