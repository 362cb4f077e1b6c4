#include "parallel/comm/nccl/nccl_world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr size_t kWordStride = 4;  // of int32: 16 bytes

// For text lines of the exchange.
std::string to_hex(const ncclUniqueId& id) {
  std::string hex;
  for (const char c : id.internal) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}
ncclUniqueId from_hex(std::string_view hex) {
  ncclUniqueId id{};
  check(hex.size() == 2 * sizeof id.internal, Exit::rank, "[nccl] rank 0 gave an id of {} characters", hex.size());
  for (size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = char(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
  return id;
}

struct Introduction {  // three lines
  std::string version, gpu, id;
};
Introduction read_introduction(const std::string& said) {
  const size_t a = said.find('\n'), b = said.find('\n', a + 1);
  check(a != std::string::npos && b != std::string::npos, Exit::rank, "[nccl] a rank introduced itself with '{}'",
        said);
  return {said.substr(0, a), said.substr(a + 1, b - a - 1), said.substr(b + 1)};
}

// Asks again at once for 200 us, in which most calls end; then after 20 us, after 1 ms in the end.
class Patience {
 public:
  void pause() {
    if (std::chrono::steady_clock::now() < sleeps_from_) return std::this_thread::yield();
    std::this_thread::sleep_for(next_);
    next_ = std::min<std::chrono::microseconds>(2 * next_, std::chrono::milliseconds(1));
  }

 private:
  const std::chrono::steady_clock::time_point sleeps_from_ =
      std::chrono::steady_clock::now() + std::chrono::microseconds(200);
  std::chrono::microseconds next_{20};
};

// A receive that waits holds as many of the GPU's multiprocessors as it has blocks, and four lanes of pipes may wait at
// once.
constexpr int kPipeBlocks = 4;

void cuda_check(cudaError_t e, const char* what) {
  check(e == cudaSuccess, Exit::device, "[nccl] {}: {}", what, cudaGetErrorString(e));
}

}  // namespace

std::shared_ptr<NcclWorld> NcclWorld::open(Exchange& exchange, const NcclOptions& options, int splits) {
  // NCCL reads these once, when it is first called.
  if (!options.algorithm.empty()) setenv("NCCL_ALGO", options.algorithm.c_str(), 1);
  if (!options.protocol.empty()) setenv("NCCL_PROTO", options.protocol.c_str(), 1);
  // NVLink SHARP adds in no fixed order, and the same run would not give the same bits.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  auto world = std::make_shared<NcclWorld>(exchange, options);
  try {
    ncclUniqueId id{};
    world->introduce(exchange, id);
    exchange.on_failure([of = std::weak_ptr<NcclWorld>(world)](const std::string& why) {
      if (const auto alive = of.lock()) alive->abort(why);
    });
    world->join(id, splits);
  } catch (const std::exception& e) {
    world->abort(e.what());
    world->close();
    throw;
  }
  return world;
}

NcclWorld::NcclWorld(Exchange& exchange, const NcclOptions& options)
    : api_(nccl()), options_(options), rank_(exchange.rank()), size_(exchange.size()) {}

NcclWorld::~NcclWorld() { close(); }

void NcclWorld::introduce(Exchange& exchange, ncclUniqueId& id) {
  if (rank_ == 0) {
    const ncclResult_t r = api_.ncclGetUniqueId(&id);
    check(r == ncclSuccess, Exit::rank, "[nccl] ncclGetUniqueId: {} ({})", api_.ncclGetErrorString(r),
          api_.ncclGetLastError(nullptr));
  }
  const std::string version = nccl_version_of(api_);
  std::vector<Introduction> all;
  for (const std::string& said : exchange.all_gather(fmt::format("{}\n{}\n{}", version, options_.gpu, to_hex(id))))
    all.push_back(read_introduction(said));
  for (size_t r = 0; r < all.size(); ++r) {
    check(all[r].version == all[0].version, Exit::rank,
          "[nccl] rank 0 ({}) has NCCL {}, rank {} ({}) has {}: install the same on all hosts", all[0].gpu,
          all[0].version, r, all[r].gpu, all[r].version);
    for (size_t q = 0; q < r && !all[r].gpu.empty(); ++q)
      check(all[q].gpu != all[r].gpu, Exit::rank, "[nccl] ranks {} and {} are both on {}: NCCL wants a GPU per rank", q,
            r, all[r].gpu);
  }
  id = from_hex(all[0].id);
}

void NcclWorld::join(const ncclUniqueId& id, int splits) {
  const size_t words = kWordStride * size_t(splits + 1);
  cuda_check(cudaMalloc(reinterpret_cast<void**>(&words_), words * sizeof *words_), "memory for barriers");
  NcclHandle& h = add("world, lane compute", rank_, size_);
  watcher_ = std::thread([this] { watch(); });
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = h.name.c_str();
  ncclResult_t r = ncclSuccess;
  {
    const std::scoped_lock locks(lives_, calls_);
    check_alive();
    r = api_.ncclCommInitRankConfig(&h.child, size_, id, rank_, &config);
    h.comm = h.child;  // at once, so that an abort finds it
  }
  wait(h, "opening", r);
  finish_opening(h);
}

NcclHandle& NcclWorld::add(const std::string& name, int rank, int size) {
  const std::scoped_lock locks(lives_, calls_);
  NcclHandle& h = *handles_.emplace_back(std::make_unique<NcclHandle>());
  h.name = name;
  h.rank = rank;
  h.size = size;
  h.word = words_ + kWordStride * (handles_.size() - 1);
  return h;
}

// A child is known some time after its parent has ended the split.
NcclHandle* NcclWorld::split(const NcclPlan::Split& s) {
  const bool in = !s.group.members.empty();
  NcclHandle* h = in ? &add(s.name, s.group.rank, s.group.size()) : nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (in) config.commName = h->name.c_str();
  if (s.pipe) config.maxCTAs = kPipeBlocks;
  call(world(), "splitting the world", [&](ncclComm_t parent) {
    return api_.ncclCommSplit(parent, in ? s.group.members[0] : NCCL_SPLIT_NOCOLOR, s.group.rank,
                              in ? &h->child : &no_child_, &config);
  });
  if (!in) return nullptr;
  h->pipe = s.pipe;
  for (Patience patience; !h->comm; patience.pause()) {
    const std::scoped_lock locks(lives_, calls_);
    check_alive();
    h->comm = h->child;
  }
  wait(*h, "opening", ncclInProgress);
  finish_opening(*h);
  return h;
}

void NcclWorld::finish_opening(NcclHandle& h) {
  int rank = -1, size = -1;
  call(h, "asking for its rank", [&](ncclComm_t c) {
    const ncclResult_t r = api_.ncclCommUserRank(c, &rank);
    return r == ncclSuccess ? api_.ncclCommCount(c, &size) : r;
  });
  check(rank == h.rank && size == h.size, Exit::rank, "[nccl] {}: wanted to be rank {} of {}, found {} of {}", h.name,
        h.rank, h.size, rank, size);
  register_arena(h);
}

void NcclWorld::register_arena(NcclHandle& h) {
  if (options_.arena.empty()) return;
  if (!api_.ncclCommRegister || !api_.ncclCommDeregister)
    return note_once("[nccl] this NCCL cannot register buffers: collectives copy through its own");
  const std::scoped_lock locks(lives_, calls_);
  check_alive();
  const ncclResult_t r = api_.ncclCommRegister(h.comm, options_.arena.data(), options_.arena.size(), &h.registration);
  if (r == ncclSuccess) return;
  h.registration = nullptr;
  note_once(fmt::format("[nccl] the arena is not registered ({}): collectives copy through NCCL's buffers",
                        api_.ncclGetErrorString(r)));
}

void NcclWorld::note_once(const std::string& note) {
  if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
}

ncclResult_t NcclWorld::try_one(const NcclHandle& h, ncclComm_t comm, cudaStream_t stream) const {
  if (!h.pipe) return api_.ncclAllReduce(h.word, h.word, 1, ncclInt32, ncclMax, comm, stream);
  return h.rank == 0 ? api_.ncclSend(h.word, 1, ncclInt32, 1, comm, stream)
                     : api_.ncclRecv(h.word, 1, ncclInt32, 0, comm, stream);
}

void NcclWorld::try_all() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream to try the communicators on");
  const auto release = [&] { cudaStreamDestroy(stream); };
  try {
    cuda_check(cudaMemsetAsync(words_, 0, kWordStride * handles_.size() * sizeof *words_, stream), "zeroing words");
    for (const auto& h : handles_) call(*h, "trying it", [&](ncclComm_t c) { return try_one(*h, c, stream); });
    cuda_check(cudaStreamSynchronize(stream), "trying the communicators");
    check_alive();
  } catch (...) {
    abort("[nccl] a communicator could not be tried");
    release();
    throw;
  }
  release();
}

// An abort ends when the graphs are gone that hold its communicators (ncclCommAbort waits for them), and those are the
// host thread's: it may not wait for the abort.
std::unique_lock<std::mutex> NcclWorld::enter() {
  std::unique_lock inside(calls_, std::defer_lock);
  for (Patience patience; !inside.try_lock(); patience.pause()) check_alive();
  check_alive();
  return inside;
}

// The host thread leaves NCCL after microseconds, unless the driver's queue is full behind a collective that never
// ends: then only an abort lets it go on, and NCCL allows one from another thread.
std::unique_lock<std::mutex> NcclWorld::take_calls() {
  std::unique_lock inside(calls_, std::defer_lock);
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  while (!inside.try_lock() && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::microseconds(50));
  return inside;
}

void NcclWorld::call(NcclHandle& h, const char* what, const std::function<ncclResult_t(ncclComm_t)>& work) {
  ncclResult_t r = ncclSuccess;
  {
    const auto inside = enter();
    r = work(h.comm);
  }
  if (r != ncclSuccess) wait(h, what, r);
}

ncclResult_t NcclWorld::state_of(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = api_.ncclCommGetAsyncError(comm, &state);
  return asked == ncclSuccess ? state : asked;
}

void NcclWorld::wait(NcclHandle& h, const char* what, ncclResult_t state, Clock::time_point deadline) {
  for (Patience patience; state == ncclInProgress; patience.pause()) {
    check(Clock::now() < deadline, Exit::rank, "[nccl] {}: {}: the other ranks did not come", h.name, what);
    const auto inside = enter();
    state = state_of(h.comm);
  }
  if (state != ncclSuccess) give_up(h, what, state);
}

std::string NcclWorld::describe(const NcclHandle& h, const char* what, ncclResult_t r, ncclComm_t comm) const {
  const char* more = api_.ncclGetLastError(comm);
  return fmt::format("[nccl] rank {}, {}: {}: {}{}{}", rank_, h.name, what, api_.ncclGetErrorString(r),
                     more && *more ? ": " : "", more ? more : "");
}

void NcclWorld::give_up(const NcclHandle& h, const char* what, ncclResult_t r) {
  std::string why;
  {
    const auto inside = enter();
    why = describe(h, what, r, h.comm);
  }
  fail_with(why);
  check_alive();
  std::abort();  // not reached: the world has failed
}

void NcclWorld::check_alive() const {
  if (!failed_) return;
  const std::lock_guard lock(why_mutex_);
  fail(Exit::rank, "{}", why_);
}

void NcclWorld::fail_with(std::string_view why) noexcept {
  try {
    const std::lock_guard lock(why_mutex_);
    if (!failed_) why_ = why;
    failed_ = true;
  } catch (...) { failed_ = true; }
}

void NcclWorld::abort(std::string_view why) noexcept {
  fail_with(why);
  const std::lock_guard alive(lives_);
  const auto inside = take_calls();
  api_.ncclGroupStart();
  for (const auto& h : handles_)
    if (const ncclComm_t comm = h->comm.exchange(nullptr)) api_.ncclCommAbort(comm);
  api_.ncclGroupEnd();
}

void NcclWorld::watch() {
  std::unique_lock lock(watch_mutex_);
  while (!stop_.wait_for(lock, std::chrono::milliseconds(50), [&] { return stopping_; })) {
    lock.unlock();
    watch_once();
    lock.lock();
  }
}

void NcclWorld::watch_once() {
  std::string why;
  {
    const std::lock_guard alive(lives_);
    const auto inside = take_calls();
    for (const auto& h : handles_) {
      if (failed_) break;
      const ncclComm_t comm = h->comm;
      const ncclResult_t state = comm ? state_of(comm) : ncclSuccess;
      if (state == ncclSuccess || state == ncclInProgress) continue;
      why = describe(*h, "while it ran", state, comm);
      break;
    }
  }
  if (failed_ || !why.empty()) abort(why);
}

void NcclWorld::stop_watching() {
  {
    const std::lock_guard lock(watch_mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

// Children before the world, in the same order on all ranks.
void NcclWorld::finalize_all() {
  for (const auto& h : handles_) {
    const std::scoped_lock locks(lives_, calls_);
    check_alive();
    if (h->registration) api_.ncclCommDeregister(h->comm, std::exchange(h->registration, nullptr));
  }
  // One after the other, in an order of the world: until 2.27 NCCL keeps what a thread has begun in one place.
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  for (auto h = handles_.rbegin(); h != handles_.rend(); ++h) {
    ncclResult_t state = ncclSuccess;
    {
      const std::lock_guard inside(calls_);
      check_alive();
      state = api_.ncclCommFinalize((*h)->comm);
    }
    wait(**h, "closing", state, deadline);
  }
}

void NcclWorld::destroy_all() {
  const std::scoped_lock locks(lives_, calls_);
  for (auto h = handles_.rbegin(); h != handles_.rend(); ++h)
    if (const ncclComm_t comm = (*h)->comm.exchange(nullptr)) api_.ncclCommDestroy(comm);
}

void NcclWorld::close() noexcept {
  if (std::exchange(closed_, true)) return;
  stop_watching();
  if (failed_ || std::uncaught_exceptions() > exceptions_) abort(fmt::format("[nccl] rank {} gave up", rank_));
  try {
    if (!failed_) finalize_all();
  } catch (const std::exception& e) { abort(e.what()); }
  destroy_all();
  cudaFree(words_);
}

}  // namespace trainer
