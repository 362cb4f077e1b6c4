// The front of a communicator whose lane does the work: tensors are checked when issued, calls go into the lane's ring,
// and where one fails there the other ranks are told, for they wait.
//
// Tensors are dense and lie in this rank's arena. Bytes and dtype are the same on all ranks; what differs is
// Error(rank) on the lane, naming two ranks and what each does. A communicator belongs to one lane.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/shm_world.h"
#include "parallel/comm/traffic.h"
#include "parallel/groups.h"

namespace trainer {

class LaneComm : public Comm {
 public:
  int rank() const final { return group_.rank; }
  int size() const final { return group_.size(); }
  void all_gather(Stream&, Tensor shard, Tensor full) final;
  void reduce_scatter(Stream&, Tensor full, Tensor shard) final;
  void all_reduce(Stream&, Tensor, Reduce = Reduce::sum) final;  // any number of elements
  // Rows for (and of) rank 0 come first, then rank 1's, without gaps. Counts are i64 [size]. Row widths and max_rows,
  // the most rows of `from` and of `to`, are the same on all ranks.
  void all_to_all_v(Stream&, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows, int64_t max_rows) final;
  void send(Stream&, Tensor, int to) final;
  void recv(Stream&, Tensor, int from) final;
  // The k-th message to a rank meets the k-th receive there; all first messages of a group are offered before it waits.
  void begin_group(Stream&) final;
  void end_group(Stream&) final;
  void barrier(Stream&) final;
  void abort() noexcept final;

 protected:
  LaneComm(ShmWorld& world, GroupName group, const std::string& lane, Traffic::Entry& traffic)
      : world_(world), group_(std::move(group)), name_(group_.key + ", lane " + lane), traffic_(traffic) {}
  const std::string& name() const { return name_; }
  ShmWorld& world() { return world_; }
  const GroupName& group() const { return group_; }
  void count_moved(int64_t bytes) { traffic_.bytes.fetch_add(bytes, std::memory_order_relaxed); }

  struct Call {  // what a lane's ring carries
    LaneComm* comm = nullptr;
    void (LaneComm::*run)(const Call&) = nullptr;
    shm::Op op = shm::Op::none;
    DType dtype = DType::u8;
    int peer = 0;
    std::byte *from = nullptr, *to = nullptr;
    size_t from_bytes = 0, to_bytes = 0;
    // all_to_all_v
    const int64_t *send_rows = nullptr, *recv_rows = nullptr;
    size_t row_bytes = 0;
    int64_t max_rows = 0;
  };
  void check_rows(const Call&) const;  // of all_to_all_v: not more than the plan has room for

  // On the lane's thread.
  virtual void run_barrier(const Call&) = 0;
  virtual void run_all_gather(const Call&) = 0;
  virtual void run_reduce_scatter(const Call&) = 0;
  virtual void run_all_reduce(const Call&) = 0;
  virtual void run_all_to_all(const Call&) = 0;
  virtual void run_offer(const Call&) = 0;  // of a message; then:
  virtual void run_await_taken(const Call&) = 0;
  virtual void run_receive(const Call&) = 0;

 private:
  struct Pending {
    bool sends;
    int peer;
    Tensor tensor;
  };
  void issue(Stream&, void (LaneComm::*run)(const Call&), const Call&);
  Call call_of(shm::Op, const Tensor& from, const Tensor& to) const;
  void check_tensor(shm::Op, const Tensor&) const;
  void check_peer(shm::Op, int peer) const;
  void issue_messages(Stream&, std::span<const Pending>);

  ShmWorld& world_;
  const GroupName group_;
  const std::string name_;
  Traffic::Entry& traffic_;
  bool grouping_ = false;
  std::vector<Pending> pending_;
};

}  // namespace trainer
