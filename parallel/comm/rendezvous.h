// The world meets over TCP: every rank keeps one connection to the coordinator, a thread in rank 0's process. A rank
// that ends without a word closes its connection, and all are told within milliseconds.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/host.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/frame.h"

namespace trainer {

struct RendezvousOptions {
  int world = 1, rank = 0;
  std::string host;  // this host, as others shall call it
  std::string machine = machine_id();
  std::string coordinator;      // rank 0's host; where it equals `host`, the loopback device is used
  std::vector<uint16_t> ports;  // rank 0 listens on the first that is free
  // A connection of another job or restart is not for us.
  std::string job;
  int64_t restart = 0;
  // Must be the same on all ranks.
  std::string spec;                             // hash of the run spec
  std::string build;                            // of the binary
  std::chrono::milliseconds arrival{60'000};    // by then all ranks have come
  std::chrono::milliseconds exchange{600'000};  // by then all ranks have said their share of an all_gather
};

// What all know of a rank.
struct Peer {
  std::string host;
  int pid = 0;
  std::string address;  // where this process can reach it
  // Host name, boot and pid namespace: processes of one machine can map each other's memory.
  std::string machine;
  int local_rank = 0, local_size = 1;  // among the ranks of its machine, in rank order
};

class Coordinator;

class Rendezvous final : public Exchange {
 public:
  // Returns when all ranks have come. Throws Error(rank) that names who is missing, who came twice, or who was started
  // with another world, spec or build (all ranks get the same sentence).
  explicit Rendezvous(RendezvousOptions);
  // Rank 0 stays until the others have gone, 5 s at most. Without leave(), the others take it for a death.
  ~Rendezvous() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.world; }
  std::vector<std::string> all_gather(std::string_view mine) override;
  void on_failure(FailureHandler handler) override;
  void leave(std::string_view why) noexcept override;
  std::string address_of(int rank) const override { return peers_[size_t(rank)].address; }

  const std::vector<Peer>& peers() const { return peers_; }  // by rank
  const Peer& self() const { return peers_[size_t(options_.rank)]; }

 private:
  std::string hello() const;
  void open();   // rank 0: listens, starts the coordinator
  void reach();  // other ranks: connects to it
  bool try_port(uint16_t port, std::string& why_not);
  Frame next_frame();  // waits; throws when the connection ends
  void take_welcome(const std::string& body);
  void watch();  // the thread
  void wake();
  void take(const Frame&);
  void connection_ended();
  void run_handlers();

  RendezvousOptions options_;
  std::unique_ptr<Coordinator> coordinator_;  // rank 0; declared first, as it ends when socket_ has closed
  Socket socket_;                             // to the coordinator
  Socket wake_, woken_;                       // to the watch thread
  FrameReader reader_;
  std::vector<Peer> peers_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<std::vector<std::string>> gathered_;
  std::string failure_;
  std::vector<FailureHandler> handlers_;
  bool left_ = false, over_ = false;  // we left; the coordinator did

  std::thread watcher_;
};

}  // namespace trainer
