// Collectives between the ranks of one host, in place in each other's memory: no staging, no copies but those that the
// operation is. Sums are taken in rank order by the owner of a slice, with an fp32 accumulator and one rounding.
#pragma once
#include "parallel/comm/lane_comm.h"
#include "parallel/comm/shm_posts.h"
#include "parallel/comm/shm_reduce.h"

namespace trainer {

class ShmComm final : public LaneComm {
 public:
  ShmComm(ShmWorld& world, const GroupName& group, const ShmPlace& place, Traffic::Entry& traffic)
      : LaneComm(world, group, place.lane, traffic), posts_(world, group, place) {}

 private:
  void run_barrier(const Call&) override;
  void run_all_gather(const Call&) override;
  void run_reduce_scatter(const Call&) override;
  void run_all_reduce(const Call&) override;
  void run_all_to_all(const Call&) override;
  void run_offer(const Call&) override;
  void run_await_taken(const Call&) override;
  void run_receive(const Call&) override;

  ShmPosts posts_;
  std::vector<std::byte*> parts_;
};

}  // namespace trainer
