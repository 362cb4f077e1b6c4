// What the parts of the NCCL shim share: communicators, and operations that ranks meet in. All of it is guarded by the
// scheduler's lock (fake::Lock).
#pragma once
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakecuda/fake_cuda.h"
#include "tests/fakecuda/nccl_shim.h"
#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
#define FAKENCCL_RELEASE(x) __tsan_release(x)
#define FAKENCCL_ACQUIRE(x) __tsan_acquire(x)
#else
#define FAKENCCL_RELEASE(x) ((void)0)
#define FAKENCCL_ACQUIRE(x) ((void)0)
#endif

namespace fakenccl {

enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };
struct Call {
  Kind kind;
  const void* send;
  void* recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
};
struct Meet {  // a collective
  std::vector<Call> calls;
  std::vector<bool> here;
  int arrived = 0;
  bool done = false, dead = false;
  char token = 0;
};
struct Message {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  bool sent = false, wanted = false, done = false, dead = false;
  char token = 0;
};
struct Clique;
struct Split {
  std::vector<int> color, key;
  int arrived = 0;
  std::vector<std::shared_ptr<Clique>> cliques;  // by rank of the parent, when all have arrived; null: no color
  std::vector<int> ranks;
};
struct Clique {  // the ranks of a communicator
  explicit Clique(int n) : size(n), joined(size_t(n), false), devices(size_t(n), -1) {}
  const int size;
  std::vector<bool> joined;
  std::vector<int> devices;
  int arrived = 0, finalized = 0;
  bool broken = false;
  std::map<uint64_t, std::shared_ptr<Meet>> meets;
  std::map<std::pair<int, int>, std::map<uint64_t, std::shared_ptr<Message>>> messages;  // by sender and receiver
  std::map<uint64_t, std::shared_ptr<Split>> splits;
};

// One operation of one rank, once it is on a stream.
struct Live {
  std::function<void()> post;    // never waits
  std::function<bool()> ready;   // called with the lock held
  std::function<void()> finish;  // when ready
};
// And on its way there. `begin` finds whom it meets: when it is put on a stream, and for every replay of a graph.
struct Task {
  ncclComm* comm;
  cudaStream_t stream;
  const char* what;
  std::function<Live()> begin;
};
struct Deferred {
  std::vector<Task> tasks;
  int asks_left = 0;
  bool taken = false;
  char token = 0;
};

// Throws nothing, returns false for null; ends the process where the handle is not alive.
bool check_alive(ncclComm_t, const char* what);
ncclResult_t refuse(ncclResult_t, const std::string& why);  // and keeps `why` for ncclGetLastError
bool in_progress(const ncclComm&);                          // with the lock held
ncclResult_t enqueue_all(const std::vector<Task>&);
void kill_operations(ncclComm&);  // of a communicator that is aborted; with the lock held
void await_graphs(ncclComm&);     // that hold operations of it: at the end of the group, if there is one
Counts& counters();               // with the lock held

// nccl_sums.cpp
size_t size_of(ncclDataType_t);  // 0: no type
const char* name_of(ncclDataType_t);
void run(const Meet&);
void poison(void*, size_t bytes);

}  // namespace fakenccl

// Never freed, so that a handle that is used too late is known.
struct ncclComm {
  std::shared_ptr<fakenccl::Clique> clique;
  int rank = 0;
  std::string name;
  bool blocking = true;
  ncclComm* parent = nullptr;
  int children = 0;

  enum class Life : uint8_t { open, aborted, destroyed } life = Life::open;
  bool finalizing = false;
  ncclResult_t error = ncclSuccess;
  std::shared_ptr<fakenccl::Deferred> deferred;
  std::shared_ptr<fakenccl::Split> split;
  ncclComm_t* child = nullptr;  // where the split's result goes
  std::string child_name;
  bool child_blocking = true;

  uint64_t collectives = 0, splits = 0;
  std::map<std::pair<bool, int>, uint64_t> messages;  // by direction and peer
  int uses = 0, under_way = 0;
  std::shared_ptr<int> held = std::make_shared<int>();  // by every graph with an operation of it
  bool in_graphs() const { return held.use_count() > 1; }
  std::map<void*, std::pair<void*, size_t>> registered;
};
