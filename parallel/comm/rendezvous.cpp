#include "parallel/comm/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "core/base/error.h"
#include "parallel/comm/coordinator.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kConnect{2000}, kReply{5000}, kTick{100};

std::string name_of(int rank, const Peer& peer) {
  return fmt::format("rank {} (host {}, pid {})", rank, peer.host, peer.pid);
}

double seconds(milliseconds t) { return double(t.count()) / 1e3; }

std::string ports_text(const std::vector<uint16_t>& ports) {
  return ports.size() == 1 ? fmt::format("port {}", ports[0])
                           : fmt::format("ports {} to {}", ports.front(), ports.back());
}

}  // namespace

Rendezvous::Rendezvous(RendezvousOptions options) : options_(std::move(options)) {
  check(!options_.ports.empty(), Exit::usage, "no port to meet at");
  if (options_.rank == 0) open();
  else reach();
  Frame frame = next_frame();
  if (frame.kind == FrameKind::admitted) frame = next_frame();
  if (frame.kind == FrameKind::failure) throw Error(Exit::rank, frame.body);
  check(frame.kind == FrameKind::welcome, Exit::rank, "rank 0 at {} ended before all ranks had come",
        options_.coordinator);
  take_welcome(frame.body);
  std::tie(wake_, woken_) = socket_pair();
  watcher_ = std::thread([this] { watch(); });
}

Rendezvous::~Rendezvous() {
  wake_ = Socket();  // the watch thread sees it close
  watcher_.join();
  socket_ = Socket();
}

std::string Rendezvous::hello() const {
  const RendezvousOptions& o = options_;
  return pack(Hello{.job = o.job,
                    .restart = std::to_string(o.restart),
                    .world = std::to_string(o.world),
                    .rank = std::to_string(o.rank),
                    .spec = o.spec,
                    .build = o.build,
                    .host = o.host,
                    .pid = std::to_string(getpid()),
                    .machine = o.machine});
}

void Rendezvous::open() {
  Socket listener;
  for (size_t i = 0; i < options_.ports.size() && !listener.valid(); ++i) {
    listener = listen_on(options_.ports[i]);
    std::string why_not;
    // Who has it? A second rank 0 of this job must not wait for ranks that went to the first.
    if (!listener.valid()) try_port(options_.ports[i], why_not);
  }
  check(listener.valid(), Exit::rank, "{} of host {} are taken: set MASTER_PORT to a free one on all ranks",
        ports_text(options_.ports), options_.host);
  Socket theirs;
  std::tie(socket_, theirs) = socket_pair();
  send_frame(socket_, FrameKind::hello, hello());  // before the coordinator starts: nobody is rank 0 before us
  coordinator_ = std::make_unique<Coordinator>(std::move(listener), std::move(theirs), options_);
}

void Rendezvous::reach() {
  const auto end = Clock::now() + options_.arrival;
  std::string why_not;
  for (milliseconds pause{10}; Clock::now() < end; pause = std::min(pause * 2, milliseconds(250))) {
    for (const uint16_t port : options_.ports)
      if (try_port(port, why_not)) return;
    std::this_thread::sleep_for(pause);
  }
  fail(Exit::rank, "rank {} (host {}) found no rank 0 at {} ({}) within {} s: {}", options_.rank, options_.host,
       options_.coordinator, ports_text(options_.ports), seconds(options_.arrival), why_not);
}

// True: this job's coordinator is there, and has admitted us. Throws what it refuses us for.
bool Rendezvous::try_port(uint16_t port, std::string& why_not) {
  const bool here = options_.rank == 0 || options_.coordinator == options_.host;
  Call call = connect_to(here ? "127.0.0.1" : options_.coordinator, port, kConnect);
  why_not = call.error;
  if (!call.socket.valid()) return false;
  FrameReader reader;
  std::optional<Frame> answer;
  const auto end = Clock::now() + kReply;
  bool open = send_frame(call.socket, FrameKind::hello, hello());
  while (open && !answer && Clock::now() < end) {
    if (wait_readable(call.socket, kTick)) open = reader.receive(call.socket);
    answer = reader.next();
  }
  if (answer && answer->kind == FrameKind::failure) throw Error(Exit::rank, answer->body);
  if (!answer || answer->kind != FrameKind::admitted) {
    why_not = fmt::format("port {} belongs to something else", port);
    return false;
  }
  socket_ = std::move(call.socket);
  reader_ = std::move(reader);
  return true;
}

Frame Rendezvous::next_frame() {
  for (bool open = true;;) {
    if (auto frame = reader_.next()) return *std::move(frame);
    check(open, Exit::rank, "rank 0 (host {}) died before all ranks had come", options_.coordinator);
    wait_readable(socket_, kTick);
    open = reader_.receive(socket_);
  }
}

void Rendezvous::take_welcome(const std::string& body) {
  const auto texts = unpack_texts(body);
  check(texts && texts->size() == size_t(options_.world) * 4, Exit::rank, "rank 0 sent a list of ranks that is none");
  // Who came to rank 0 through its loopback device is on its host: to be reached where rank 0 is.
  const std::string rank0_address = peer_address(socket_);
  std::map<std::string, int> sizes;
  for (size_t i = 0; i < texts->size(); i += 4) {
    Peer peer{
        .host = (*texts)[i], .pid = std::stoi((*texts)[i + 1]), .address = (*texts)[i + 2], .machine = (*texts)[i + 3]};
    if (peer.address == "127.0.0.1") peer.address = rank0_address;
    peer.local_rank = sizes[peer.machine]++;
    peers_.push_back(std::move(peer));
  }
  for (Peer& peer : peers_) peer.local_size = sizes[peer.machine];
}

std::vector<std::string> Rendezvous::all_gather(std::string_view mine) {
  std::unique_lock lock(mutex_);
  const auto ended = [&] { return !failure_.empty() || over_; };
  if (!ended()) {
    gathered_.reset();
    lock.unlock();
    const bool sent = send_frame(socket_, FrameKind::part, mine);
    lock.lock();
    const auto answered = [&] { return gathered_ || ended(); };
    if (sent) changed_.wait(lock, answered);
    else changed_.wait_for(lock, kReply, answered);
    if (gathered_) return *std::exchange(gathered_, std::nullopt);
  }
  if (!failure_.empty()) throw Error(Exit::rank, failure_);
  fail(Exit::rank, "{} {}, but others still wait for its share of an exchange", name_of(0, peers_[0]),
       over_ ? "has left" : "does not answer");
}

void Rendezvous::on_failure(FailureHandler handler) {
  const std::lock_guard lock(mutex_);
  handlers_.push_back(std::move(handler));
  wake();
}

void Rendezvous::leave(std::string_view why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(left_, true)) return;
  }
  send_frame(socket_, FrameKind::leave, why);
}

void Rendezvous::wake() {
  const char one = 1;
  send(wake_.fd(), &one, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Rendezvous::watch() {
  for (bool open = true;;) {
    while (const std::optional<Frame> frame = reader_.next()) take(*frame);
    if (!open) connection_ended();
    run_handlers();
    pollfd ready[2] = {{open ? socket_.fd() : -1, POLLIN, 0}, {woken_.fd(), POLLIN, 0}};
    poll(ready, 2, -1);
    if (ready[0].revents) open = reader_.receive(socket_);
    char bytes[64];
    if (ready[1].revents && recv(woken_.fd(), bytes, sizeof bytes, MSG_DONTWAIT) == 0) return;
  }
}

void Rendezvous::take(const Frame& frame) {
  const std::lock_guard lock(mutex_);
  if (frame.kind == FrameKind::gathered) gathered_ = unpack_texts(frame.body);
  else if (frame.kind == FrameKind::over) over_ = true;
  else if (frame.kind == FrameKind::failure && failure_.empty() && !left_) failure_ = frame.body;
  changed_.notify_all();
}

void Rendezvous::connection_ended() {
  const std::lock_guard lock(mutex_);
  if (failure_.empty() && !left_ && !over_) failure_ = name_of(0, peers_[0]) + " died";
  over_ = true;
  changed_.notify_all();
}

void Rendezvous::run_handlers() {
  std::unique_lock lock(mutex_);
  if (failure_.empty() || left_) return;
  const std::vector<FailureHandler> handlers = std::exchange(handlers_, {});
  const std::string why = failure_;
  lock.unlock();
  for (const FailureHandler& handler : handlers) handler(why);
}

}  // namespace trainer
