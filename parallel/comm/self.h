// The groups of a world of one rank: gathers and scatters copy or do nothing, sums are what they are.
#pragma once
#include "core/device/comm.h"

namespace trainer {

class SelfComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(Stream&, Tensor shard, Tensor full) override;
  void reduce_scatter(Stream&, Tensor full, Tensor shard) override;
  void all_reduce(Stream&, Tensor, Reduce = Reduce::sum) override {}
  void all_to_all_v(Stream&, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows, int64_t max_rows) override;
  void send(Stream&, Tensor, int to) override;
  void recv(Stream&, Tensor, int from) override;
  void begin_group(Stream&) override {}
  void end_group(Stream&) override {}
  void barrier(Stream&) override {}
  void abort() noexcept override {}
};

class SelfGroups final : public Groups {
 public:
  Comm& on(Axis, Lane) override { return comm_; }
  Comm& pipe(int from, int to, bool gradient) override;  // throws Error(rank): one rank has no peer

 private:
  SelfComm comm_;
};

}  // namespace trainer
