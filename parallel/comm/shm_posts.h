// The protocol of one communicator: ranks post what they do and where their tensor lies, check that all do the same,
// read and write each other's memory, and depart together. docs/communication.md
//
// Used by the one thread of the communicator's lane. Every function throws Error(rank) when the world failed, and for
// ranks that do not do the same: then it names two of them, and what each does.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/shm_world.h"
#include "parallel/groups.h"

namespace trainer {

// Where a communicator's words lie in the control blocks. `of_peers` differs from `own` in a pipe.
struct ShmPlace {
  std::string lane;  // for messages
  int own = 0, of_peers = 0;
  int spins = 0;  // before a waiting rank sleeps
};

struct ShmMessage {
  shm::Op op = shm::Op::none;
  DType dtype = DType::u8;
  size_t bytes = 0;                 // the same on all ranks
  const std::byte* data = nullptr;  // in this rank's arena; null: no tensor
  const std::byte* rows = nullptr;
};

std::string describe(const ShmMessage&);  // "all_reduce sum of 64 bytes f32"
uint64_t hash_of(const GroupName&);

class ShmPosts {
 public:
  ShmPosts(ShmWorld&, GroupName, ShmPlace);
  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }
  std::string name() const;
  std::span<std::byte> arena() const { return members_[size_t(rank())].arena; }
  ShmWorld& world() { return world_; }

  // Posts, and returns when all members have posted the same operation.
  void arrive(const ShmMessage&);
  // Of the operation that all arrived at: where a member's tensor and its row counts lie.
  std::byte* data(int member) const { return data_[size_t(member)]; }
  std::byte* rows(int member) const { return rows_[size_t(member)]; }
  // Returns when all members have departed: from then on each may use its tensors again.
  void depart();

  void offer(int to, const ShmMessage&);  // a message; one at a time and receiver
  void await_taken(int to, const ShmMessage&);
  std::byte* take(int from, const ShmMessage& expected);  // where the offered tensor lies, until:
  void give_back(int from);

 private:
  enum class Kind : uint8_t { none, phase, sent, taken };
  struct Member {
    int rank;
    shm::Control* control;
    std::span<std::byte> arena;
  };
  shm::Slot& slot(int member) const;
  shm::Box& box(int member, int peer) const;  // of `member`, for `peer`
  shm::Word& word(Kind, int member, int peer) const;
  void write(shm::Cell&, const ShmMessage&, uint32_t sequence) const;
  void compare(int member, const shm::Cell&, const ShmMessage&, uint32_t sequence) const;
  std::byte* locate(int member, uint64_t offset) const;
  void await(Kind, int member, uint32_t target, const ShmMessage&);
  // Whether `member` waits for something of this rank that will not come before this rank's own wait ends.
  bool waits_for_this(int member) const;
  [[noreturn]] void refuse(const ShmMessage& own, int member, const std::string& theirs, uint32_t sequence) const;

  ShmWorld& world_;
  const GroupName group_;
  const ShmPlace place_;
  const uint64_t hash_;
  std::vector<Member> members_;
  std::vector<std::byte*> data_, rows_;
};

}  // namespace trainer
