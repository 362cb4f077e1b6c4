// Collectives, messages and groups of calls in the NCCL shim.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/fakecuda/nccl_clique.h"

namespace fakenccl {
namespace {

thread_local int depth = 0;  // of ncclGroupStart
thread_local std::vector<Task> grouped;
thread_local ncclResult_t group_error = ncclSuccess;
thread_local std::vector<ncclComm*> aborted;  // in the group

const char* call_of(Kind k) {
  constexpr const char* kNames[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast"};
  return kNames[size_t(k)];
}

// With the lock held. Connections take a moment: at the first use, and sometimes later.
bool takes_long(const std::vector<Task>& tasks) {
  bool slow = false;
  for (const Task& t : tasks)
    if (!t.comm->blocking) slow |= t.comm->uses++ == 0 || fake::rnd() % 16 == 0;
  return slow;
}

ncclResult_t launch(std::vector<Task> tasks) {
  {
    const fake::Lock lock;
    for (const Task& t : tasks)
      if (in_progress(*t.comm))
        return refuse(ncclInvalidArgument, t.comm->name + ": used before its last call was over");
    if (takes_long(tasks)) {
      auto d = std::make_shared<Deferred>();
      d->asks_left = 1 + int(fake::rnd() % 4);
      for (const Task& t : tasks) t.comm->deferred = d;
      FAKENCCL_RELEASE(&d->token);
      d->tasks = std::move(tasks);
      ++counters().answered_in_progress;
      return ncclInProgress;
    }
  }
  return enqueue_all(tasks);
}

ncclResult_t give(Task task) {
  if (depth == 0) return launch({std::move(task)});
  grouped.push_back(std::move(task));
  return ncclSuccess;
}

ncclResult_t wrong(const std::string& why) {
  const ncclResult_t r = refuse(ncclInvalidArgument, why);
  if (depth > 0 && group_error == ncclSuccess) group_error = r;
  return r;
}

bool overlap(const char* a, size_t n, const char* b, size_t m) { return n && m && a < b + m && b < a + n; }

void check_buffers(const ncclComm& comm, const Call& c) {
  const size_t n = size_t(comm.clique->size), bytes = c.count * size_of(c.type);
  const size_t sent = c.kind == Kind::reduce_scatter ? n * bytes : bytes,
               received = c.kind == Kind::all_gather ? n * bytes : bytes;
  fake::check_dev(c.send, sent, call_of(c.kind));
  fake::check_dev(c.recv, received, call_of(c.kind));
  const char *from = static_cast<const char*>(c.send), *to = static_cast<const char*>(c.recv);
  const size_t own = size_t(comm.rank) * bytes;
  const bool in_place = c.kind == Kind::all_gather       ? from == to + own
                        : c.kind == Kind::reduce_scatter ? to == from + own
                                                         : from == to;
  if (!in_place && overlap(from, sent, to, received))
    fake::fail("%s on %s: the buffers overlap and are not in place", call_of(c.kind), comm.name.c_str());
}

void post(ncclComm& comm, Meet& m, uint64_t sequence, const Call& c) {
  FAKENCCL_RELEASE(&m.token);
  const fake::Lock lock;
  if (comm.life != ncclComm::Life::open) return;
  for (size_t r = 0; r < m.calls.size(); ++r) {
    const Call& o = m.calls[r];
    if (!m.here[r] || (o.kind == c.kind && o.count == c.count && o.type == c.type && o.op == c.op && o.root == c.root))
      continue;
    fake::fail("operation %llu of '%s' differs: rank %d calls %s of %zu %s, op %d, rank %zu calls %s of %zu %s, op %d",
               static_cast<unsigned long long>(sequence), comm.name.c_str(), comm.rank, call_of(c.kind), c.count,
               name_of(c.type), int(c.op), r, call_of(o.kind), o.count, name_of(o.type), int(o.op));
  }
  m.calls[size_t(comm.rank)] = c;
  m.here[size_t(comm.rank)] = true;
  ++m.arrived;
}

void finish(ncclComm& comm, Meet& m, uint64_t sequence, const Call& c) {
  FAKENCCL_ACQUIRE(&m.token);
  const fake::Lock lock;
  --comm.under_way;
  const bool open = comm.life == ncclComm::Life::open;
  if (!m.done && (!open || m.dead)) {
    const size_t n = c.kind == Kind::all_gather ? size_t(comm.clique->size) : 1;
    poison(c.recv, n * c.count * size_of(c.type));
    if (open) comm.error = ncclRemoteError;
    return;
  }
  if (!m.done) {
    run(m);
    m.done = true;
    comm.clique->meets.erase(sequence);
  }
  FAKENCCL_RELEASE(&m.token);
  FAKENCCL_ACQUIRE(&m.token);
}

Live begin(ncclComm& comm, const Call& c) {
  check_alive(&comm, call_of(c.kind));
  const fake::Lock lock;
  const uint64_t sequence = comm.collectives++;
  auto& m = comm.clique->meets[sequence];
  if (!m) {
    m = std::make_shared<Meet>();
    m->calls.resize(size_t(comm.clique->size));
    m->here.resize(size_t(comm.clique->size));
  }
  ++counters().collectives;
  ++comm.under_way;
  return {[=, &comm, m = m] { post(comm, *m, sequence, c); },
          [&comm, m = m] {
            return comm.life != ncclComm::Life::open || m->done || (m->arrived == comm.clique->size && !m->dead);
          },
          [=, &comm, m = m] { finish(comm, *m, sequence, c); }};
}

ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const Call& c) {
  if (!check_alive(comm, call_of(c.kind))) return wrong("no communicator");
  if (!size_of(c.type)) return wrong("no such type");
  if (c.op != ncclSum && c.op != ncclMax && c.op != ncclMin) return wrong("the shim has sum, max and min");
  if (c.root < 0 || c.root >= comm->clique->size) return wrong("no such root");
  check_buffers(*comm, c);
  return give({comm, stream, call_of(c.kind), [=] { return begin(*comm, c); }});
}

struct Half {  // of a message
  bool sends;
  void* data;
  size_t count;
  ncclDataType_t type;
  int peer;
  uint64_t sequence = 0;  // of its pair
  std::pair<int, int> pair(int rank) const { return sends ? std::pair(rank, peer) : std::pair(peer, rank); }
};

void post(ncclComm& comm, Message& m, const Half& h) {
  FAKENCCL_RELEASE(&m.token);
  const fake::Lock lock;
  if (comm.life != ncclComm::Life::open) return;
  if ((m.sent || m.wanted) && (m.count != h.count || m.type != h.type)) {
    const int sender = h.sends ? comm.rank : h.peer, receiver = h.sends ? h.peer : comm.rank;
    const auto [sent, wanted] = h.sends ? std::pair(h.count, m.count) : std::pair(m.count, h.count);
    const auto [of, into] = h.sends ? std::pair(h.type, m.type) : std::pair(m.type, h.type);
    fake::fail("a message of '%s' differs: rank %d sends %zu %s, rank %d receives %zu %s", comm.name.c_str(), sender,
               sent, name_of(of), receiver, wanted, name_of(into));
  }
  m.count = h.count;
  m.type = h.type;
  if (h.sends) m.send = h.data, m.sent = true;
  else m.recv = h.data, m.wanted = true;
}

void finish(ncclComm& comm, Message& m, const Half& h) {
  FAKENCCL_ACQUIRE(&m.token);
  const fake::Lock lock;
  --comm.under_way;
  const bool open = comm.life == ncclComm::Life::open;
  const size_t bytes = h.count * size_of(h.type);
  if (!m.done && (!open || m.dead)) {
    if (!h.sends) poison(h.data, bytes);
    if (open) comm.error = ncclRemoteError;
    return;
  }
  if (!m.done) {
    fake::acc_read(m.send, bytes);
    fake::acc_write(m.recv, bytes);
    if (bytes) std::memcpy(m.recv, m.send, bytes);
    m.done = true;
    comm.clique->messages[h.pair(comm.rank)].erase(h.sequence);
  }
  FAKENCCL_RELEASE(&m.token);
  FAKENCCL_ACQUIRE(&m.token);
}

Live begin(ncclComm& comm, Half h) {
  check_alive(&comm, h.sends ? "ncclSend" : "ncclRecv");
  const fake::Lock lock;
  h.sequence = comm.messages[{h.sends, h.peer}]++;
  auto& m = comm.clique->messages[h.pair(comm.rank)][h.sequence];
  if (!m) m = std::make_shared<Message>();
  ++counters().messages;
  ++comm.under_way;
  return {[=, &comm, m = m] { post(comm, *m, h); },
          [&comm, m = m] { return comm.life != ncclComm::Life::open || m->done || (m->sent && m->wanted && !m->dead); },
          [=, &comm, m = m] { finish(comm, *m, h); }};
}

ncclResult_t message(ncclComm_t comm, cudaStream_t stream, const Half& h) {
  const char* what = h.sends ? "ncclSend" : "ncclRecv";
  if (!check_alive(comm, what)) return wrong("no communicator");
  if (!size_of(h.type)) return wrong("no such type");
  if (h.peer < 0 || h.peer >= comm->clique->size) return wrong("no such peer");
  fake::check_dev(h.data, h.count * size_of(h.type), what);
  return give({comm, stream, what, [=] { return begin(*comm, h); }});
}

using Lives = std::vector<Live>;

Lives begin_all(const std::vector<Task>& tasks) {
  Lives lives;
  for (const Task& t : tasks) lives.push_back(t.begin());
  return lives;
}
fake::Op posting(const char* what, const Lives& lives) {
  return {what, [lives] { std::for_each(lives.begin(), lives.end(), [](const Live& l) { l.post(); }); }, {}};
}
fake::Op waiting(const char* what, const Lives& lives) {
  return {what, [lives] { std::for_each(lives.begin(), lives.end(), [](const Live& l) { l.finish(); }); },
          [lives] { return std::all_of(lives.begin(), lives.end(), [](const Live& l) { return l.ready(); }); }};
}

}  // namespace

// A group of calls is one operation of each stream: all are posted before any is waited for. What is captured begins
// when it is replayed.
ncclResult_t enqueue_all(const std::vector<Task>& tasks) {
  std::vector<cudaStream_t> streams;
  for (const Task& t : tasks)
    if (std::find(streams.begin(), streams.end(), t.stream) == streams.end()) streams.push_back(t.stream);
  for (const cudaStream_t stream : streams) {
    std::vector<Task> mine;
    std::copy_if(tasks.begin(), tasks.end(), std::back_inserter(mine),
                 [&](const Task& t) { return t.stream == stream; });
    const char* what = mine[0].what;
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &capturing);
    auto lives = std::make_shared<Lives>();  // of a replay: its posting is renewed before its waiting
    std::vector<std::shared_ptr<int>> held;
    if (capturing == cudaStreamCaptureStatusNone) *lives = begin_all(mine);
    else
      for (const Task& t : mine) held.push_back(t.comm->held);
    fake::Op first = posting(what, *lives), second = waiting(what, *lives);
    first.renew = [=, of_graph = std::move(held)] { return posting(what, *lives = begin_all(mine)); };
    second.renew = [=] { return waiting(what, *lives); };
    if (fake::enqueue(stream, std::move(first)) != cudaSuccess ||
        fake::enqueue(stream, std::move(second)) != cudaSuccess)
      return refuse(ncclUnhandledCudaError, std::string(what) + ": the stream takes nothing");
  }
  return ncclSuccess;
}

void await_graphs(ncclComm& comm) {
  if (depth > 0) return aborted.push_back(&comm);
  fake::drive([&] { return !comm.in_graphs(); }, "ncclCommAbort: a graph holds the communicator");
}

void kill_operations(ncclComm& comm) {
  for (auto& [sequence, m] : comm.clique->meets) m->dead |= bool(m->here[size_t(comm.rank)]);
  for (auto& [pair, sequence] : comm.clique->messages)
    for (auto& [k, m] : sequence)
      m->dead |= (pair.first == comm.rank && m->sent) || (pair.second == comm.rank && m->wanted);
  if (comm.deferred && !comm.deferred->taken) comm.deferred.reset();
}

}  // namespace fakenccl

using namespace fakenccl;

extern "C" {
ncclResult_t ncclAllReduce(const void* send, void* recv, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s) {
  return collective(c, s, {Kind::all_reduce, send, recv, n, t, op, 0});
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t s) {
  return collective(c, s, {Kind::reduce_scatter, send, recv, n, t, op, 0});
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return collective(c, s, {Kind::all_gather, send, recv, n, t, ncclSum, 0});
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                           cudaStream_t s) {
  return collective(c, s, {Kind::broadcast, send, recv, n, t, ncclSum, root});
}
ncclResult_t ncclSend(const void* p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return message(c, s, {true, const_cast<void*>(p), n, t, peer});
}
ncclResult_t ncclRecv(void* p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return message(c, s, {false, p, n, t, peer});
}
ncclResult_t ncclGroupStart() {
  if (depth++ == 0) group_error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  for (ncclComm* comm : std::exchange(aborted, {})) await_graphs(*comm);
  std::vector<Task> tasks = std::move(grouped);
  grouped.clear();
  if (group_error != ncclSuccess) return group_error;
  return tasks.empty() ? ncclSuccess : launch(std::move(tasks));
}
}
