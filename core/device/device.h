// What a training step runs on. A lane is a CUDA stream, a CPU thread, or a clock; a device has one arena and twelve
// lanes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/tensor/tensor.h"

namespace trainer {

enum class DeviceKind : uint8_t { cpu, cuda, meter };

// One communicator per lane and group. The four pipe lanes keep both directions free of each other.
// `load` brings batches in and `copy` takes snapshots out: a batch must never queue behind a checkpoint slice. `vote`
// is for what the world must agree on while the others go on.
enum class Lane : uint8_t {
  compute,
  side,
  gather,
  reduce,
  exchange,
  send_act,
  recv_act,
  send_grad,
  recv_grad,
  load,
  copy,
  vote
};
inline constexpr int kLanes = 12;
using LaneMask = uint16_t;
std::string_view name_of(Lane);

struct Event {  // "everything issued on that lane so far"; counts never start again
  Lane lane = Lane::compute;
  uint64_t count = 0;
  bool for_host = false;  // of record_for_host
};

// Accounts of a lane's time, beside its waits: of an axis' operations, by its number, and of whole plans, from the
// first instruction to the last.
inline constexpr int kAccounts = 13, kPlanAccount = kAccounts - 1;

class Stream {
 public:
  virtual ~Stream() = default;
  virtual DeviceKind kind() const = 0;
  virtual void* native() = 0;  // cudaStream_t on a GPU, the worker pool on a CPU
  // One host thread issues the whole plan and runs ahead. On the CPU `submit` copies the arguments into the lane's
  // ring, and the lane's worker calls `run` in order; on a GPU the kernel's host part runs at once and enqueues on the
  // native stream.
  virtual void submit(void (*run)(Stream&, const void*), const void* args, size_t bytes) = 0;
  virtual Event record() = 0;
  virtual void wait(Event) = 0;  // this lane waits, not the host
  // An event that the host may wait for: also where it is part of a Graph, for its newest launch then. A lane has two
  // at a time: the host waits for one before it is recorded again.
  virtual Event record_for_host() { return record(); }
  // What the lane does in between is added to the account, on devices that keep them. Begun once before it is ended;
  // the plan's holds the others.
  virtual void begin_account(int /*account*/) {}
  virtual void end_account(int /*account*/) {}
  // Only the meter listens: cost, and scratch whose maximum sizes the lane's part of the arena.
  virtual void charge(std::string_view /*op*/, Cost, size_t /*scratch*/) {}
  virtual std::span<std::byte> scratch() = 0;  // one per lane, so it needs no waits; 128-byte aligned
};

class Memory {  // where an arena comes from: huge pages, a shared segment, cudaMalloc. Injected by app/wire.
 public:
  virtual ~Memory() = default;
  virtual std::span<std::byte> reserve(size_t bytes) = 0;
};

// Where a lane's time went since the device was opened, in seconds. A CPU says it as of now, and keeps no accounts. A
// GPU says it as of the last event for the host; busy is what plans took without their waits, gaps between kernels
// included.
struct LaneTimes {
  double busy = 0;                           // in kernels
  std::array<double, kLanes> waited{};       // for events of other lanes
  std::array<double, kAccounts> accounts{};  // parts of busy
};

// Work of several lanes that a device keeps, waits included, to be given to it again by one call. It keeps addresses,
// no values: what differs between two launches lies in memory.
class Graph {
 public:
  virtual ~Graph() = default;  // a launch that is under way goes on
};

// Host memory beside the arena that commands of every lane may read and write: what goes in and comes out of a step.
inline constexpr size_t kPageBytes = 4096;

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual Stream& lane(Lane) = 0;
  virtual std::span<std::byte>
  arena() = 0;  // addresses that only a CPU's host may use: see upload, core/device/host_image.h
  virtual std::span<std::byte> page() = 0;  // kPageBytes, aligned to 64
  // More such memory, zeroes, until the device is closed.
  virtual std::span<std::byte> more_page(size_t bytes) = 0;
  // Between host memory and the arena; the host waits. At the start, for a checkpoint, to look for an error: never in a
  // step. REQUIRES: no lane uses these bytes.
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
  virtual void wait(Event) = 0;  // the host waits. Once per step, for `agree` or the last vote; the copy lane keeps
                                 // running into the next step
  virtual void drain() = 0;      // every lane: before a restore, a checkpoint, the end; never in a step
  virtual std::optional<LaneTimes> times(Lane) = 0;  // nothing where lanes are not timed

  // In between, lanes keep what they are given and run none of it; `lanes` are those that are used. All of it has been
  // run before, for libraries load and allocate when they are first called. Throws Error(device) where a device has no
  // graphs. After an exception in between, the device can only be closed.
  virtual void begin_graph(LaneMask lanes);
  virtual std::unique_ptr<Graph> end_graph();
  // Behind all that the lanes have; what they are given later comes behind all of it.
  virtual void launch(Graph&);
};

}  // namespace trainer
