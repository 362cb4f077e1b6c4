// Messages between ranks of several hosts, over UCX. A rank has a port per lane, used by that lane's thread: progress
// is made there, within waits, and by an attendant while nothing is under way. docs/communication.md
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/shm_world.h"

namespace trainer {

// Which operation a message belongs to; travels before it.
struct MessageHeader {
  uint64_t group = 0;  // hash of the group's key and members
  uint64_t bytes = 0;  // of the operation's tensor
  uint64_t part = 0, part_bytes = 0;
  uint32_t epoch = 0, sequence = 0;
  uint32_t members = 0;  // of the group
  uint32_t had = 0;      // in a notice: how many messages of its receiver the sender has had
  shm::Op op = shm::Op::none;
  DType dtype = DType::u8;
};

// The other end: a rank's port of a lane. The lanes differ where the two ends of a pipe do.
struct RemotePort {
  int rank = 0;
  Lane lane = Lane::compute;
  auto operator<=>(const RemotePort&) const = default;
};

class Network;
struct Ucx;

class Port {
 public:
  Port(const Network&, Lane);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  struct Transfer;  // a message on its way
  // Return at once; the bytes stay in place until wait(). Messages of one pair of ports meet in the order in which they
  // were begun at each end. `header.part_bytes` are moved.
  Transfer* begin_send(const RemotePort& to, const MessageHeader& header, const std::byte* bytes);
  Transfer* begin_receive(const RemotePort& from, const MessageHeader& expected, std::byte* bytes);
  // `group` for messages. Throws Error(rank) when the world failed or the peer cannot be reached; for a message of
  // another operation; and when the peer in turn waits for one that this rank has not sent. Of the latter two it says
  // what each does.
  void wait(Transfer*, const std::string& group);
  void flush(const std::string& group);  // what was sent has left
  void attend();                         // makes progress while nothing is under way

  std::string introduction() const;  // where others find it

 private:
  struct Peer;
  enum class Kind : uint64_t;  // of a message
  static uint64_t tag_of(Kind, int from, Lane);
  Peer& peer(const RemotePort&);
  Transfer* take(const RemotePort&, const MessageHeader&, bool sends);
  // A request, or null where it is done at once.
  void* send(const RemotePort& to, Kind, const void* bytes, size_t count);
  void* receive(const RemotePort& from, Kind, void* bytes, size_t count);
  void* under_way(void* request, int peer, const char* what) const;  // throws where it is an error
  void await(void*& request, Transfer&, const std::string& group);
  void sleep();
  void look(Transfer&, const std::string& group, int ticks);  // whether the awaited one waits for this rank
  void compare(const Transfer&, const std::string& group) const;
  [[noreturn]] void refuse(const Transfer&, const MessageHeader& theirs, const std::string& group) const;
  [[noreturn]] void give_up(int peer, const std::string& what, int status) const;

  const Network& network_;
  const Ucx& ucx_;
  const Lane lane_;
  const int spins_;
  std::mutex busy_;  // a public function is at work
  void* worker_ = nullptr;
  int ready_ = -1;  // readable when there may be progress
  std::map<RemotePort, std::unique_ptr<Peer>> peers_;
  std::deque<Transfer> transfers_;
  std::vector<Transfer*> free_;
};

// The ports of a rank, and where those of the others are.
class Network {
 public:
  // Collective over the exchange. `address`: of this host, on the interface to use; empty: UCX chooses. Throws
  // Error(rank) where UCX is missing or does not start.
  Network(Exchange&, const ShmWorld&, const std::string& address);
  // Where nothing has failed it waits for the other ranks: nobody closes a connection that another still reads from.
  // Otherwise ports stay open until the process ends.
  ~Network();
  Port& port(Lane lane) { return *ports_[size_t(lane)]; }
  const ShmWorld& world() const { return world_; }
  void* context() const { return context_; }
  const std::string& introduction(const RemotePort& p) const { return introductions_[size_t(p.rank)][size_t(p.lane)]; }

 private:
  bool is_over() const;  // for all ranks, in order
  void attend(const std::stop_token&);

  Exchange& exchange_;
  const ShmWorld& world_;
  void* context_ = nullptr;
  std::array<std::unique_ptr<Port>, kLanes> ports_;
  std::vector<std::vector<std::string>> introductions_;  // by rank and lane
  std::jthread attendant_;
};

// The address of this host from which `address` is reached; empty: it is not.
std::string own_address_towards(const std::string& address);

}  // namespace trainer
