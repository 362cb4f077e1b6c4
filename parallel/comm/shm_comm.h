// Collectives between the ranks of one host, in place in each other's memory: no staging, no copies but those that the
// operation is. Sums are taken in rank order by the owner of a slice, with an fp32 accumulator and one rounding.
//
// Tensors are dense and lie in this rank's arena (checked when issued). Bytes and dtype are the same on all ranks; what
// differs is Error(rank) on the lane, naming two ranks and what each does. A communicator belongs to one lane.
#pragma once
#include <span>
#include <vector>

#include "parallel/comm/shm_posts.h"
#include "parallel/comm/shm_reduce.h"
#include "parallel/comm/traffic.h"

namespace trainer {

class ShmComm final : public Comm {
 public:
  ShmComm(ShmWorld& world, GroupName group, ShmPlace place, Traffic::Entry& traffic)
      : posts_(world, std::move(group), std::move(place)), traffic_(traffic) {}
  int rank() const override { return posts_.rank(); }
  int size() const override { return posts_.size(); }
  void all_gather(Stream&, Tensor shard, Tensor full) override;
  void reduce_scatter(Stream&, Tensor full, Tensor shard) override;
  void all_reduce(Stream&, Tensor, Reduce = Reduce::sum) override;  // any number of elements
  // Rows for (and of) rank 0 come first, then rank 1's, without gaps. Counts are i64 [size]. Row widths and max_rows,
  // the most rows of `from` and of `to`, are the same on all ranks.
  void all_to_all_v(Stream&, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows, int64_t max_rows) override;
  void send(Stream&, Tensor, int to) override;
  void recv(Stream&, Tensor, int from) override;
  // The k-th message to a rank meets the k-th receive there; all first messages of a group are offered before it waits.
  void begin_group(Stream&) override;
  void end_group(Stream&) override;
  void barrier(Stream&) override;
  void abort() noexcept override;

 private:
  struct Call;  // what a lane's ring carries
  struct Pending {
    bool sends;
    int peer;
    Tensor tensor;
  };
  void issue(Stream&, void (ShmComm::*run)(const Call&), const Call&);
  Call call_of(shm::Op, const Tensor& from, const Tensor& to) const;
  void check_tensor(shm::Op, const Tensor&) const;
  void check_peer(shm::Op, int peer) const;
  void issue_messages(Stream&, std::span<const Pending>);

  void run_barrier(const Call&);
  void run_all_gather(const Call&);
  void run_reduce_scatter(const Call&);
  void run_all_reduce(const Call&);
  void run_all_to_all(const Call&);
  void run_offer(const Call&);
  void run_receive(const Call&);
  void run_await_taken(const Call&);

  void count_moved(int64_t bytes) { traffic_.bytes.fetch_add(bytes, std::memory_order_relaxed); }

  ShmPosts posts_;
  Traffic::Entry& traffic_;
  bool grouping_ = false;          // the host's
  std::vector<Pending> pending_;   // the host's
  std::vector<std::byte*> parts_;  // the lane's
};

}  // namespace trainer
