// The collectives of one group on one lane. Tensors are dense; shapes and dtypes are the same on all ranks, which NCCL
// does not check: plans are compared by their hash before the first step. Moved bytes are those of the closed forms of
// core/device/collective.h, counted when an operation is issued.
#pragma once
#include <vector>

#include "parallel/comm/nccl/nccl_world.h"

namespace trainer {

class NcclComm final : public Comm {
 public:
  // `handle` is null where the plan has no communicator for this axis and lane: such a group has a rank and a size, and
  // refuses to communicate. All must live as long.
  NcclComm(NcclWorld& world, NcclHandle* handle, GroupName group, Axis axis, Lane lane, Traffic& traffic)
      : world_(world),
        handle_(handle),
        group_(std::move(group)),
        axis_(axis),
        name_(group_.key + ", lane " + std::string(name_of(lane))),
        traffic_(traffic.entry(axis, lane)) {}
  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  void all_gather(Stream&, Tensor shard, Tensor full) override;
  void reduce_scatter(Stream&, Tensor full, Tensor shard) override;
  void all_reduce(Stream&, Tensor, Reduce = Reduce::sum) override;
  void all_to_all_v(Stream&, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows, int64_t max_rows) override;
  // The k-th message to a rank meets the k-th receive there. Nothing is buffered: outside of a group a send ends when
  // it has been received.
  void send(Stream&, Tensor, int to) override;
  void recv(Stream&, Tensor, int from) override;
  void begin_group(Stream&) override;
  void end_group(Stream&) override;
  void barrier(Stream&) override;
  void abort() noexcept override;

 private:
  struct Message {
    bool sends;
    int peer;
    Tensor tensor;
  };
  struct Call {  // what a stream's `submit` carries
    NcclComm* comm = nullptr;
    void (NcclComm::*run)(cudaStream_t, const Call&) = nullptr;
    Tensor from, to;
    Reduce reduce = Reduce::sum;
  };
  void issue(Stream&, void (NcclComm::*run)(cudaStream_t, const Call&), const Tensor& from = {}, const Tensor& to = {},
             Reduce = Reduce::sum);
  void run_all_gather(cudaStream_t, const Call&);
  void run_reduce_scatter(cudaStream_t, const Call&);
  void run_all_reduce(cudaStream_t, const Call&);
  void run_messages(cudaStream_t, const Call&);
  void run_barrier(cudaStream_t, const Call&);
  ncclResult_t give_messages(ncclComm_t, cudaStream_t) const;
  void add_message(Stream&, const Message&);
  NcclHandle& handle(const char* op) const;
  void check_tensor(const char* op, const Tensor&) const;
  void check_parts(const char* op, const Tensor& shard, const Tensor& full) const;
  void count(int64_t bytes) { traffic_.bytes.fetch_add(bytes, std::memory_order_relaxed); }

  NcclWorld& world_;
  NcclHandle* const handle_;
  const GroupName group_;
  const Axis axis_;
  const std::string name_;
  Traffic::Entry& traffic_;
  bool grouping_ = false;
  std::vector<Message> messages_;
};

}  // namespace trainer
