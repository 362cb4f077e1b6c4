// The device that computes nothing and counts everything: FLOPs, bytes, scratch, commands, collective traffic. Running
// the blocks on it is the one cost formula of the project.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "core/device/comm.h"

namespace trainer {

struct OpCount {
  int64_t calls = 0;
  double flops = 0, bytes = 0;
};
struct CollectiveCount {
  int64_t count = 0;
  double bytes = 0;   // of the full tensor, summed over calls
  int64_t moved = 0;  // by this rank (core/device/collective.h)
};

struct MeterCounts {
  std::map<std::string, OpCount> ops;
  std::map<std::string, CollectiveCount> collectives;  // "dp all_reduce f32"
  std::array<size_t, kLanes> scratch{};                // maxima
  std::array<size_t, kLanes> commands{}, argument_bytes{};
  std::string trace;  // every collective in order: part of the program's hash
  double flops() const;
};

class MeterStream final : public Stream {
 public:
  MeterStream(Lane lane, MeterCounts& counts) : lane_(lane), counts_(counts) {}
  DeviceKind kind() const override { return DeviceKind::meter; }
  void* native() override { return nullptr; }
  void submit(void (*)(Stream&, const void*), const void*, size_t bytes) override;
  Event record() override { return {lane_, 0}; }
  void wait(Event) override;
  void charge(std::string_view op, Cost, size_t scratch) override;
  std::span<std::byte> scratch() override { return {}; }

 private:
  Lane lane_;
  MeterCounts& counts_;
};

class MeterDevice final : public Device {
 public:
  MeterDevice();
  DeviceKind kind() const override { return DeviceKind::meter; }
  Stream& lane(Lane l) override { return streams_[size_t(l)]; }
  std::span<std::byte> arena() override { return {}; }
  std::span<std::byte> page() override { return page_; }
  std::span<std::byte> more_page(size_t bytes) override { return more_.emplace_back(bytes); }
  void upload(std::byte*, std::span<const std::byte>) override {}
  void download(std::span<std::byte>, const std::byte*) override {}
  void wait(Event) override {}
  void drain() override {}
  std::optional<LaneTimes> times(Lane) override { return std::nullopt; }
  MeterCounts& counts() { return counts_; }

 private:
  MeterCounts counts_;
  std::array<MeterStream, kLanes> streams_;
  alignas(64) std::array<std::byte, kPageBytes> page_{};
  std::vector<std::vector<std::byte>> more_;
};

// A communicator that writes its calls down: in the counts by its axis ("pp"), in the trace by its name ("act 0>1").
class MeterComm final : public Comm {
 public:
  struct Label {
    std::string axis, name;
  };
  MeterComm(Label label, int rank, int size, MeterCounts& counts)
      : label_(std::move(label)), rank_(rank), size_(size), counts_(counts) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(Stream&, Tensor shard, Tensor full) override;
  void reduce_scatter(Stream&, Tensor full, Tensor shard) override;
  void all_reduce(Stream&, Tensor, Reduce) override;
  void all_to_all_v(Stream&, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows, int64_t max_rows) override;
  void send(Stream&, Tensor, int to) override;
  void recv(Stream&, Tensor, int from) override;
  void begin_group(Stream&) override {}
  void end_group(Stream&) override {}
  void barrier(Stream&) override;
  void abort() noexcept override {}

 private:
  struct What {
    const char* op;
    Tensor full;
    int64_t moved = 0;
    int peer = -1;
  };
  void count(Stream&, const What&);
  const Label label_;
  int rank_, size_;
  MeterCounts& counts_;
};

// One rank on the meter.
class MeterGroupsOfOne final : public Groups {
 public:
  explicit MeterGroupsOfOne(MeterCounts& counts) : comm_({"self", "self"}, 0, 1, counts) {}
  Comm& on(Axis, Lane) override { return comm_; }
  Comm& pipe(int, int, bool) override { return comm_; }  // nobody is at the other end

 private:
  MeterComm comm_;
};

}  // namespace trainer
