// Collectives of a group that spans hosts: within a host in place, as ShmComm; between hosts as messages.
//
// Sums: a tensor is cut into chunks. The first host adds its ranks' shares of a chunk in rank order and hands the
// partial sum (fp32) to the next host, which adds its own; the last one rounds, and the result goes back. So a host
// holds neighbouring ranks of the group, and the bits are those of one host. The ranks of a host take chunks in turn.
#pragma once
#include "parallel/comm/lane_comm.h"
#include "parallel/comm/network.h"
#include "parallel/comm/shm_posts.h"
#include "parallel/comm/shm_reduce.h"

namespace trainer {

// Members [first, first + count) of a group are on one host.
struct HostSpan {
  int first = 0, count = 0;
};
// In the group's order. `host_of`: by rank of the world. Throws Error(rank) where a host's ranks are no neighbours.
std::vector<HostSpan> host_spans(const GroupName&, const std::vector<int>& host_of);

class HostsComm final : public LaneComm {
 public:
  struct Place {
    ShmPlace local;
    Lane own = Lane::compute, of_peers = Lane::compute;  // differ in a pipe
    Traffic::Entry& traffic;                             // what an operation moves by its closed form, as on one host
  };
  HostsComm(ShmWorld&, Network&, const GroupName&, std::vector<HostSpan>, const Place&);

 private:
  struct Chunk {  // elements of the tensor; those of `owner`'s slice, or owner goes round
    int64_t number = 0, begin = 0, elements = 0;
    int owner = 0;
  };
  struct Sum;  // one operation

  void run_barrier(const Call&) override;
  void run_all_gather(const Call&) override;
  void run_reduce_scatter(const Call&) override;
  void run_all_reduce(const Call&) override;
  void run_all_to_all(const Call&) override;
  void run_offer(const Call&) override;
  void run_await_taken(const Call&) override;
  void run_receive(const Call&) override;

  int last_host() const { return int(spans_.size()) - 1; }
  bool on(int host, int member) const;
  bool here(int member) const { return on(host_, member); }
  int local(int member) const { return member - spans_[size_t(host_)].first; }
  // Who of a host moves what belongs to `owner`: itself where it is there.
  int handler(int host, int owner) const;
  bool handles(int owner) const { return handler(host_, owner) == rank(); }

  void begin(const ShmMessage&);  // an operation of the whole group
  void end();
  MessageHeader header(uint64_t part, size_t part_bytes) const;
  MessageHeader message_header(const Call&, shm::Op, uint32_t sequence) const;
  Port::Transfer* send(int member, const MessageHeader&, const std::byte*);
  Port::Transfer* receive(int member, const MessageHeader&, std::byte*);
  void wait(Port::Transfer*& t);  // null: nothing

  void run_sum(Sum&);
  Chunk chunk(const Sum&, int64_t number) const;
  void expect_partial(Sum&, const Chunk&);
  void hand_on(Sum&, const Chunk&);
  void finish(Sum&, const Chunk&, std::span<const std::byte* const> shares);
  void take_result(Sum&, const Chunk&);
  void share_locally(const std::byte* from, size_t at, size_t bytes);

  const std::vector<HostSpan> spans_;
  const Place place_;
  int host_ = 0;
  ShmPosts posts_;
  Port& port_;
  MessageHeader header_;  // of the operation under way
  uint32_t sequence_ = 0;
  std::vector<uint32_t> sent_, received_;            // messages, by member
  std::vector<std::deque<Port::Transfer*>> offers_;  // by member
  std::vector<std::byte> staging_;                   // partial sums
  std::vector<const std::byte*> shares_;
};

}  // namespace trainer
