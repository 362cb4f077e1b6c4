// The communicators of one rank: how they are opened, watched, aborted and closed.
//
// All are non-blocking: a call that has not ended says so, and the host asks again until it has, so no rank waits
// inside of NCCL for one that never comes. Two threads use them: the host thread, which issues the plan, and a watcher,
// which asks every communicator for errors. A third may abort them at any time.
//
// NCCL's order: kernels of two communicators must not start in different orders on different ranks, lest each fills a
// GPU. One host thread issues the plan, in an order that the ranks share; lanes that outrun each other are the danger,
// and NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26) the remedy, at the price of some overlap.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/nccl/nccl_api.h"
#include "parallel/comm/nccl/nccl_plan.h"
#include "parallel/comm/nccl_backend.h"

namespace trainer {

struct NcclHandle {
  std::string name;
  int rank = 0, size = 1;
  bool pipe = false;                      // rank 0 sends, rank 1 receives
  std::atomic<ncclComm_t> comm{nullptr};  // null: aborted, or not open yet
  ncclComm_t child = nullptr;             // where NCCL leaves it, some time after a split began
  void* registration = nullptr;
  int32_t* word = nullptr;  // device memory that is the communicator's own, for operations without a tensor
};

class NcclWorld {
 public:
  // Collective over the exchange; `splits`: at most so many will follow.
  static std::shared_ptr<NcclWorld> open(Exchange&, const NcclOptions&, int splits);
  NcclWorld(Exchange&, const NcclOptions&);
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  const Nccl& api() const { return api_; }
  NcclHandle& world() { return *handles_.front(); }
  // Collective over the world. Null where this rank takes no part.
  NcclHandle* split(const NcclPlan::Split&);
  // Once in every communicator, in the order they were opened: connections are made before the first step, so that no
  // step waits for them, and a group that does not work says so by name.
  void try_all();

  // On the host thread: `work` gives an operation to NCCL. Returns when NCCL has put it on its stream. Throws
  // Error(rank) with `what`, the group, and what NCCL said; the watcher aborts the world then.
  void call(NcclHandle&, const char* what, const std::function<ncclResult_t(ncclComm_t)>& work);
  void check_alive() const;
  // From any thread, but for one that owns graphs with operations of these communicators: it ends when they are gone.
  // The first reason stays. Streams that wait in a collective go on at once.
  void abort(std::string_view why) noexcept;
  // All ranks come here, or the world is aborted. Where an exception passes, others still wait for this rank: aborted.
  // REQUIRES: no graph holds an operation of these communicators.
  void close() noexcept;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  using Clock = std::chrono::steady_clock;
  void introduce(Exchange&, ncclUniqueId&);
  void join(const ncclUniqueId&, int splits);
  NcclHandle& add(const std::string& name, int rank, int size);
  void finish_opening(NcclHandle&);
  void register_arena(NcclHandle&);
  ncclResult_t try_one(const NcclHandle&, ncclComm_t, cudaStream_t) const;
  void note_once(const std::string&);
  ncclResult_t state_of(ncclComm_t) const;
  void wait(NcclHandle&, const char* what, ncclResult_t state, Clock::time_point deadline = Clock::time_point::max());
  [[noreturn]] void give_up(const NcclHandle&, const char* what, ncclResult_t);
  std::string describe(const NcclHandle&, const char* what, ncclResult_t, ncclComm_t) const;
  void fail_with(std::string_view why) noexcept;  // the watcher aborts
  std::unique_lock<std::mutex> enter();           // of the host thread: throws where the world has failed
  std::unique_lock<std::mutex> take_calls();
  void watch();
  void watch_once();
  void stop_watching();
  void finalize_all();
  void destroy_all();

  const Nccl& api_;
  const NcclOptions options_;
  const int rank_, size_;
  const int exceptions_ = std::uncaught_exceptions();
  std::vector<std::unique_ptr<NcclHandle>> handles_;  // the world's first; the list grows under both locks
  ncclComm_t no_child_ = nullptr;                     // of a split that this rank has no part in
  int32_t* words_ = nullptr;
  std::vector<std::string> notes_;
  bool closed_ = false;

  std::mutex lives_;  // who asks for errors, aborts or destroys communicators; taken first
  std::mutex calls_;  // who is inside of NCCL
  std::atomic<bool> failed_{false};
  mutable std::mutex why_mutex_;
  std::string why_;

  std::thread watcher_;
  std::mutex watch_mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
};

}  // namespace trainer
