// Communicators of the NCCL shim: how they begin, divide and end.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/fakecuda/nccl_clique.h"

using namespace fakenccl;
using Life = ncclComm::Life;

namespace fakenccl {
namespace {

std::map<std::string, std::shared_ptr<Clique>> announced;  // by unique id
std::vector<std::unique_ptr<ncclComm>> all;
thread_local std::string last_error;
thread_local int version = 0;

bool is_blocking(const ncclConfig_t* config, bool otherwise) {
  if (!config || config->blocking == NCCL_CONFIG_UNDEF_INT) return otherwise;
  return config->blocking != 0;
}
std::string name_in(const ncclConfig_t* config) { return config && config->commName ? config->commName : "unnamed"; }

// With the lock held.
ncclComm* add(std::shared_ptr<Clique> clique, int rank, const std::string& name, bool blocking, ncclComm* parent) {
  all.push_back(std::make_unique<ncclComm>());
  ncclComm* c = all.back().get();
  c->clique = std::move(clique);
  c->rank = rank;
  c->name = name;
  c->blocking = blocking;
  c->parent = parent;
  if (parent) ++parent->children;
  c->clique->joined[size_t(rank)] = true;
  ++c->clique->arrived;
  ++counters().alive;
  return c;
}

// Of a split that all ranks have asked for. With the lock held.
void divide(Split& s) {
  const int n = int(s.color.size());
  s.cliques.resize(size_t(n));
  s.ranks.resize(size_t(n));
  for (int r = 0; r < n; ++r) {
    if (s.color[size_t(r)] < 0 || s.cliques[size_t(r)]) continue;
    std::vector<int> of;
    for (int q = 0; q < n; ++q)
      if (s.color[size_t(q)] == s.color[size_t(r)]) of.push_back(q);
    std::stable_sort(of.begin(), of.end(), [&](int a, int b) { return s.key[size_t(a)] < s.key[size_t(b)]; });
    const auto clique = std::make_shared<Clique>(int(of.size()));
    for (size_t i = 0; i < of.size(); ++i) {
      s.cliques[size_t(of[i])] = clique;
      s.ranks[size_t(of[i])] = int(i);
    }
  }
}

bool split_is_over(const ncclComm& c) { return c.split->arrived == c.clique->size; }
void take_child(ncclComm& c) {
  const auto s = std::exchange(c.split, nullptr);
  const auto& clique = s->cliques[size_t(c.rank)];
  *c.child = clique ? add(clique, s->ranks[size_t(c.rank)], c.child_name, c.child_blocking, &c) : nullptr;
}

void end(ncclComm& c, Life how) {
  c.life = how;
  if (c.parent) --c.parent->children;
  --counters().alive;
  if (how == Life::aborted) ++counters().aborted;
}

}  // namespace

Counts& counters() {
  static Counts c;
  return c;
}
Counts counts() {
  const fake::Lock lock;
  return counters();
}

bool check_alive(ncclComm_t c, const char* what) {
  if (!c) return false;
  const fake::Lock lock;
  const bool known = std::any_of(all.begin(), all.end(), [&](const auto& of) { return of.get() == c; });
  if (!known) fake::fail("%s: no communicator", what);
  if (c->life != Life::open)
    fake::fail("%s: communicator '%s' is used after it was %s", what, c->name.c_str(),
               c->life == Life::aborted ? "aborted" : "destroyed");
  return true;
}

ncclResult_t refuse(ncclResult_t r, const std::string& why) {
  last_error = why;
  return r;
}

bool in_progress(const ncclComm& c) {
  if (c.clique->arrived < c.clique->size || c.deferred) return true;
  return c.split != nullptr || (c.finalizing && c.clique->finalized < c.clique->size);
}

void fail_async(std::string_view name, int rank, ncclResult_t error) {
  const fake::Lock lock;
  for (const auto& c : all)
    if (c->name == name && c->rank == rank && c->life == Life::open) c->error = error;
}
void set_version(int code) { version = code; }

}  // namespace fakenccl

extern "C" {
ncclResult_t ncclGetVersion(int* v) {
  *v = version ? version : NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t r) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "in progress"};
  return r < ncclNumResults ? kTexts[r] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const fake::Lock lock;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "shim-%zu", announced.size());
  announced[id->internal] = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int n, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config && (config->magic != 0xcafebeef || config->size != sizeof *config))
    return refuse(ncclInvalidArgument, "the configuration was not initialised");
  if (n < 1 || rank < 0 || rank >= n) return refuse(ncclInvalidArgument, "no such rank");
  int device = 0;
  cudaGetDevice(&device);
  std::shared_ptr<Clique> clique;
  const bool blocking = is_blocking(config, true);
  {
    const fake::Lock lock;
    const auto found = announced.find(id.internal);
    if (found == announced.end()) return refuse(ncclInvalidArgument, "an id that ncclGetUniqueId never gave");
    if (!found->second) found->second = std::make_shared<Clique>(n);
    clique = found->second;
    if (clique->size != n || clique->joined[size_t(rank)])
      fake::fail("ncclCommInitRankConfig: rank %d of %d comes to a world of %d%s", rank, n, clique->size,
                 clique->size == n ? ", where it is already" : "");
    const auto& d = clique->devices;
    if (std::find(d.begin(), d.end(), device) != d.end()) {
      clique->broken = true;
      return refuse(ncclInvalidUsage, "duplicate GPU: two ranks on device " + std::to_string(device));
    }
    clique->devices[size_t(rank)] = device;
    *out = add(clique, rank, name_in(config), blocking, nullptr);
  }
  if (!blocking) return ncclInProgress;
  fake::drive([&] { return clique->broken || clique->arrived == n; }, "ncclCommInitRankConfig");
  return clique->broken ? ncclInvalidUsage : ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  if (!check_alive(c, "ncclCommSplit")) return refuse(ncclInvalidArgument, "no communicator");
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) return refuse(ncclInvalidArgument, "a negative color");
  {
    const fake::Lock lock;
    if (in_progress(*c)) return refuse(ncclInvalidArgument, c->name + ": split before its last call was over");
    auto& split = c->clique->splits[c->splits++];
    if (!split) {
      split = std::make_shared<Split>();
      split->color.resize(size_t(c->clique->size));
      split->key.resize(size_t(c->clique->size));
    }
    split->color[size_t(c->rank)] = color;
    split->key[size_t(c->rank)] = key;
    if (++split->arrived == c->clique->size) divide(*split);
    c->split = split;
    c->child = out;
    c->child_name = name_in(config);
    c->child_blocking = is_blocking(config, c->blocking);
    *out = nullptr;
  }
  if (!c->blocking) return ncclInProgress;
  fake::drive([&] { return split_is_over(*c); }, "ncclCommSplit");
  {
    const fake::Lock lock;
    take_child(*c);
  }
  if (*out) fake::drive([&] { return !in_progress(**out); }, "ncclCommSplit");
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* state) {
  if (!check_alive(c, "ncclCommGetAsyncError")) return refuse(ncclInvalidArgument, "no communicator");
  std::shared_ptr<Deferred> due;
  {
    const fake::Lock lock;
    *state = c->clique->broken ? ncclInvalidUsage : c->error;
    if (*state != ncclSuccess) return ncclSuccess;
    if (c->split && split_is_over(*c)) take_child(*c);
    if (c->deferred && !c->deferred->taken && --c->deferred->asks_left <= 0) {
      due = c->deferred;
      due->taken = true;
    }
    *state = in_progress(*c) ? ncclInProgress : ncclSuccess;
  }
  if (!due) return ncclSuccess;
  FAKENCCL_ACQUIRE(&due->token);
  const ncclResult_t given = enqueue_all(due->tasks);
  const fake::Lock lock;
  if (given != ncclSuccess) c->error = given;
  for (const Task& t : due->tasks) t.comm->deferred.reset();
  due->tasks.clear();
  *state = c->error != ncclSuccess ? c->error : in_progress(*c) ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int* n) {
  if (!check_alive(c, "ncclCommCount")) return refuse(ncclInvalidArgument, "no communicator");
  *n = c->clique->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* rank) {
  if (!check_alive(c, "ncclCommUserRank")) return refuse(ncclInvalidArgument, "no communicator");
  *rank = c->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void* data, size_t bytes, void** handle) {
  if (!check_alive(c, "ncclCommRegister")) return refuse(ncclInvalidArgument, "no communicator");
  fake::check_dev(data, bytes, "ncclCommRegister");
  const fake::Lock lock;
  static uintptr_t next = 0;
  *handle = reinterpret_cast<void*>(++next);
  c->registered[*handle] = {data, bytes};
  ++counters().registered;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void* handle) {
  if (!check_alive(c, "ncclCommDeregister")) return refuse(ncclInvalidArgument, "no communicator");
  const auto found = c->registered.find(handle);
  if (found == c->registered.end()) return refuse(ncclInvalidArgument, "a buffer that is not registered");
  fake::check_dev(found->second.first, found->second.second, "ncclCommDeregister: a buffer freed too early");
  const fake::Lock lock;
  c->registered.erase(found);
  --counters().registered;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  if (!check_alive(c, "ncclCommFinalize")) return refuse(ncclInvalidArgument, "no communicator");
  {
    const fake::Lock lock;
    if (c->finalizing || in_progress(*c)) return refuse(ncclInvalidArgument, c->name + ": finalized too early");
    if (c->under_way) fake::fail("ncclCommFinalize: '%s' has %d operations under way", c->name.c_str(), c->under_way);
    c->finalizing = true;
    ++c->clique->finalized;
  }
  if (!c->blocking) return ncclInProgress;
  fake::drive([&] { return c->clique->finalized == c->clique->size; }, "ncclCommFinalize");
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  if (!check_alive(c, "ncclCommDestroy")) return ncclSuccess;
  {
    const fake::Lock lock;
    const char* name = c->name.c_str();
    if (c->children) fake::fail("ncclCommDestroy: '%s' has %d children alive", name, c->children);
    if (!c->registered.empty()) fake::fail("ncclCommDestroy: '%s' has registered buffers", name);
    if (c->under_way) fake::fail("ncclCommDestroy: '%s' has %d operations under way", name, c->under_way);
    if (c->in_graphs()) fake::fail("ncclCommDestroy: '%s' has operations in a graph", name);
  }
  if (!c->finalizing) {  // it waits for the other ranks then, as NCCL does
    const ncclResult_t r = ncclCommFinalize(c);
    if (r != ncclSuccess && r != ncclInProgress) return r;
  }
  fake::drive([&] { return c->clique->finalized == c->clique->size; }, "ncclCommDestroy");
  const fake::Lock lock;
  end(*c, Life::destroyed);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (!check_alive(c, "ncclCommAbort")) return ncclSuccess;
  {
    const fake::Lock lock;
    kill_operations(*c);
    counters().registered -= int(c->registered.size());
    c->registered.clear();
    end(*c, Life::aborted);
  }
  await_graphs(*c);
  return ncclSuccess;
}
}
