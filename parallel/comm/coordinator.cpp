#include "parallel/comm/coordinator.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <charconv>

namespace trainer {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTick{100}, kLinger{5000}, kHelloPatience{5000};

}  // namespace

std::string pack(const Hello& h) {
  return pack_texts({h.job, h.restart, h.world, h.rank, h.spec, h.build, h.host, h.pid, h.machine});
}

std::optional<Hello> unpack_hello(std::string_view body) {
  const auto texts = unpack_texts(body);
  if (!texts || texts->size() != 9) return {};
  const auto& t = *texts;
  return Hello{t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]};
}

Coordinator::Coordinator(Socket listener, Socket rank0, const RendezvousOptions& options)
    : options_(options),
      listener_(std::move(listener)),
      members_(size_t(options.world)),
      parts_(size_t(options.world)) {
  Connection& own = connections_.emplace_back();
  own.socket = std::move(rank0);
  own.since = start_;
  own.own = true;
  thread_ = std::thread([this] { serve(); });
}

Coordinator::~Coordinator() { thread_.join(); }

void Coordinator::serve() {
  while (!finished()) {
    wait_and_read();
    check_time();
    connections_.remove_if([](const Connection& c) { return c.closed; });
  }
  send_all(FrameKind::over, "");
}

// After rank 0 has gone: in order, when the others have too; after a failure, when all have heard of it.
bool Coordinator::finished() const {
  if (!rank0_gone_) return false;
  if (Clock::now() - *rank0_gone_ > kLinger) return true;
  if (!failure_.empty()) return welcomed_ || came_ >= options_.world;
  return std::none_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.rank >= 0; });
}

void Coordinator::wait_and_read() {
  std::vector<pollfd> ready;
  std::vector<Connection*> whose;
  for (Connection& c : connections_) {
    ready.push_back({c.socket.fd(), POLLIN, 0});
    whose.push_back(&c);
  }
  ready.push_back({listener_.fd(), POLLIN, 0});
  poll(ready.data(), ready.size(), int(kTick.count()));
  for (size_t i = 0; i < whose.size(); ++i)
    if (ready[i].revents) read(*whose[i]);
  if (ready.back().revents) accept_all();
}

void Coordinator::accept_all() {
  for (Socket caller = accept_from(listener_); caller.valid(); caller = accept_from(listener_)) {
    Connection& c = connections_.emplace_back();
    c.socket = std::move(caller);
    c.since = Clock::now();
  }
}

void Coordinator::read(Connection& c) {
  const bool open = c.reader.receive(c.socket);
  while (!c.closed) {
    const std::optional<Frame> frame = c.reader.next();
    if (!frame) break;
    handle(c, *frame);
  }
  if (!open && !c.closed) end(c);
}

void Coordinator::handle(Connection& c, const Frame& frame) {
  if (c.rank < 0) {
    const auto hello = frame.kind == FrameKind::hello ? unpack_hello(frame.body) : std::nullopt;
    if (!hello) return end(c);
    if (hello->job == options_.job && hello->restart == std::to_string(options_.restart)) return admit(c, *hello);
    send_frame(c.socket, FrameKind::stranger, "");
    return end(c);
  }
  Member& member = *members_[size_t(c.rank)];
  if (frame.kind == FrameKind::part) {
    if (std::none_of(parts_.begin(), parts_.end(), [](const auto& part) { return part.has_value(); }))
      exchange_start_ = Clock::now();
    parts_[size_t(c.rank)] = frame.body;
    check_exchange();
  } else if (frame.kind == FrameKind::leave) {
    member.left = true;
    if (!frame.body.empty()) fail_all(name(c.rank) + " gave up: " + frame.body);
    check_exchange();
  }
}

std::string Coordinator::refusal(const Hello& h) const {
  const std::string who = fmt::format("rank {} (host {}, pid {})", h.rank, h.host, h.pid);
  const std::string world = std::to_string(options_.world);
  const auto differ = [&](const char* what, const std::string& theirs, const std::string& ours, const char* cure) {
    return fmt::format("{} was started with {} {}, rank 0 (host {}) with {}: {}", who, what, theirs, options_.host,
                       ours, cure);
  };
  if (h.world != world) return differ("world size", h.world, world, "start all ranks of a job alike");
  if (h.build != options_.build) return differ("build", h.build, options_.build, "run the same binary everywhere");
  if (h.spec != options_.spec) return differ("run spec", h.spec, options_.spec, "give all the same spec and overrides");
  int rank = -1;
  std::from_chars(h.rank.data(), h.rank.data() + h.rank.size(), rank);
  if (rank < 0 || rank >= options_.world) return fmt::format("{}: wanted a rank from 0 to {}", who, options_.world - 1);
  if (const auto& first = members_[size_t(rank)])
    return fmt::format(
        "two processes are rank {}: pid {} on host {} and pid {} on host {}: is one left over, or was the job "
        "started twice?",
        rank, first->pid, first->host, h.pid, h.host);
  return "";
}

void Coordinator::admit(Connection& c, const Hello& hello) {
  ++came_;
  std::string why = failure_;
  if (why.empty()) why = refusal(hello);
  if (!why.empty()) {
    if (!welcomed_) fail_all(why);  // a world that runs is not stopped by a latecomer
    send_frame(c.socket, FrameKind::failure, why);
    return;
  }
  c.rank = std::stoi(hello.rank);
  members_[size_t(c.rank)] = Member{hello.host, hello.pid, hello.machine, peer_address(c.socket), &c};
  send_frame(c.socket, FrameKind::admitted, "");
  if (std::all_of(members_.begin(), members_.end(), [](const auto& m) { return m.has_value(); })) welcome_all();
}

void Coordinator::welcome_all() {
  welcomed_ = true;
  std::vector<std::string> peers;
  for (const auto& m : members_) peers.insert(peers.end(), {m->host, m->pid, m->address, m->machine});
  send_all(FrameKind::welcome, pack_texts(peers));
}

void Coordinator::check_exchange() {
  const bool any = std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part.has_value(); });
  if (!any || !failure_.empty()) return;
  std::vector<std::string> shares;
  for (size_t r = 0; r < parts_.size(); ++r) {
    if (parts_[r]) shares.push_back(*parts_[r]);
    else if (members_[r]->left)
      return fail_all(name(int(r)) + " has left, but others wait for its share of an exchange");
  }
  if (shares.size() < parts_.size()) return;
  parts_.assign(parts_.size(), std::nullopt);
  send_all(FrameKind::gathered, pack_texts(shares));
}

void Coordinator::check_time() {
  const auto now = Clock::now();
  for (Connection& c : connections_)
    if (c.rank < 0 && !c.own && failure_.empty() && now - c.since > kHelloPatience) end(c);
  if (!failure_.empty()) return;
  std::vector<bool> here(members_.size());
  const auto seconds = [](milliseconds t) { return double(t.count()) / 1e3; };
  if (!welcomed_ && now - start_ > options_.arrival) {
    for (size_t r = 0; r < here.size(); ++r) here[r] = members_[r].has_value();
    came_ = options_.world;
    fail_all(fmt::format("{} did not come to rank 0 (host {}) within {} s: see why they did not start", missing(here),
                         options_.host, seconds(options_.arrival)));
  }
  const bool any = std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part.has_value(); });
  if (any && now - exchange_start_ > options_.exchange) {
    for (size_t r = 0; r < here.size(); ++r) here[r] = parts_[r].has_value();
    fail_all(fmt::format("{} did not take part in an exchange within {} s", missing(here), seconds(options_.exchange)));
  }
}

void Coordinator::end(Connection& c) {
  c.closed = true;
  if (c.own) rank0_gone_ = Clock::now();
  if (c.rank < 0) return;
  Member& member = *members_[size_t(c.rank)];
  member.connection = nullptr;
  if (!member.left) fail_all(name(c.rank) + " died");
}

void Coordinator::fail_all(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  send_all(FrameKind::failure, why);
}

void Coordinator::send_all(FrameKind kind, const std::string& body) {
  for (const auto& member : members_)
    if (member && member->connection) send_frame(member->connection->socket, kind, body);
}

std::string Coordinator::name(int rank) const {
  const Member& m = *members_[size_t(rank)];
  return fmt::format("rank {} (host {}, pid {})", rank, m.host, m.pid);
}

std::string Coordinator::missing(const std::vector<bool>& here) const {
  std::string list;
  for (size_t r = 0; r < here.size(); ++r)
    if (!here[r]) list += fmt::format("{}{}", list.empty() ? "" : ", ", r);
  const bool several = list.find(',') != list.npos;
  return fmt::format("{} {} of {}", several ? "ranks" : "rank", list, options_.world);
}

}  // namespace trainer
