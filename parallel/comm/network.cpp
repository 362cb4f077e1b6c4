#include "parallel/comm/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "parallel/comm/frame.h"
#include "parallel/comm/shm_posts.h"
#include "parallel/comm/sockets.h"
#include "parallel/comm/ucx.h"

namespace trainer {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{10};
constexpr milliseconds kAttendance{20};
constexpr int kNoticeAfter = 20;  // ticks
constexpr milliseconds kWordOfDeath{1000};

void check_ucx(const Ucx& ucx, ucs_status_t status, std::string_view what) {
  check(status == UCS_OK, Exit::rank, "[ucx] {}: {}", what, ucx.ucs_status_string(status));
}

std::string describe(const MessageHeader& h) { return describe(ShmMessage{h.op, h.dtype, h.bytes}); }

// Of an address in numbers; empty: this host has no such interface.
std::string interface_of(const std::string& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* i = all; i && name.empty(); i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    const socklen_t bytes = i->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = "";
    if (getnameinfo(i->ifa_addr, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 && address == text)
      name = i->ifa_name;
  }
  freeifaddrs(all);
  return name;
}

ucp_context_h open_context(const Ucx& u, const std::string& address) {
  ucp_config_t* config = nullptr;
  check_ucx(u, u.ucp_config_read(nullptr, nullptr, &config), "configuration");
  if (!address.empty() && !std::getenv("UCX_NET_DEVICES")) {
    const std::string interface = interface_of(address);
    check(!interface.empty(), Exit::rank, "[ucx] no interface of this host has the address {}", address);
    check_ucx(u, u.ucp_config_modify(config, "NET_DEVICES", interface.c_str()), "interface " + interface);
  }
  check_ucx(u, u.ucp_config_modify(config, "TLS", "tcp"), "tcp");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // lanes are threads
  ucp_context_h context = nullptr;
  const ucs_status_t status = u.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  u.ucp_config_release(config);
  check_ucx(u, status, "start");
  return context;
}

bool moves_data(Lane lane) { return lane != Lane::load && lane != Lane::copy; }

}  // namespace

enum class Port::Kind : uint64_t { head, body, notice };

uint64_t Port::tag_of(Kind kind, int from, Lane lane) {
  return uint64_t(kind) << 56 | uint64_t(lane) << 48 | uint64_t(uint32_t(from));
}

struct Port::Transfer {
  RemotePort peer;
  bool sends = false;
  MessageHeader header, found;  // what is sent or expected; what came
  void *head = nullptr, *body = nullptr;
};

struct Port::Peer {
  ucp_ep_h end = nullptr;
  ucs_status_t broken = UCS_OK;
  uint32_t sent = 0, had = 0;  // messages
  MessageHeader notice, own_notice;
  void *notice_request = nullptr, *own_notice_request = nullptr;
};

Port::Port(const Network& network, Lane lane)
    : network_(network), ucx_(ucx()), lane_(lane), spins_(network.world().cores_suffice() ? 100 : 2) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // opened by the host's thread, used by the lane's
  ucp_worker_h worker = nullptr;
  check_ucx(ucx_, ucx_.ucp_worker_create(ucp_context_h(network.context()), &params, &worker), "worker");
  worker_ = worker;
  check_ucx(ucx_, ucx_.ucp_worker_get_efd(worker, &ready_), "worker");
}

Port::~Port() { ucx_.ucp_worker_destroy(ucp_worker_h(worker_)); }

std::string Port::introduction() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  check_ucx(ucx_, ucx_.ucp_worker_get_address(ucp_worker_h(worker_), &address, &bytes), "address");
  std::string text(reinterpret_cast<const char*>(address), bytes);
  ucx_.ucp_worker_release_address(ucp_worker_h(worker_), address);
  return text;
}

Port::Peer& Port::peer(const RemotePort& remote) {
  std::unique_ptr<Peer>& found = peers_[remote];
  if (found) return *found;
  found = std::make_unique<Peer>();
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(network_.introduction(remote).data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = found.get();
  params.err_handler.cb = [](void* peer, ucp_ep_h, ucs_status_t status) { static_cast<Peer*>(peer)->broken = status; };
  check_ucx(ucx_, ucx_.ucp_ep_create(ucp_worker_h(worker_), &params, &found->end),
            fmt::format("connection to rank {}", remote.rank));
  found->notice_request = receive(remote, Kind::notice, &found->notice, sizeof found->notice);
  return *found;
}

void* Port::send(const RemotePort& to, Kind kind, const void* bytes, size_t count) {
  const ucp_request_param_t plain{};
  const uint64_t tag = tag_of(kind, network_.world().rank(), lane_);
  return under_way(ucx_.ucp_tag_send_nbx(peer(to).end, bytes, count, tag, &plain), to.rank, "send");
}

void* Port::receive(const RemotePort& from, Kind kind, void* bytes, size_t count) {
  const ucp_request_param_t plain{};
  const uint64_t tag = tag_of(kind, from.rank, from.lane);
  void* request = ucx_.ucp_tag_recv_nbx(ucp_worker_h(worker_), bytes, count, tag, UINT64_MAX, &plain);
  // A body that came before it was asked for, and is longer: its header says so, and is compared before it.
  if (UCS_PTR_IS_ERR(request) && UCS_PTR_STATUS(request) == UCS_ERR_MESSAGE_TRUNCATED) return nullptr;
  return under_way(request, from.rank, "receive");
}

// A connection may be known as broken before anything waits for it.
void* Port::under_way(void* request, int peer, const char* what) const {
  if (UCS_PTR_IS_ERR(request)) give_up(peer, fmt::format("[ucx] {}", what), UCS_PTR_STATUS(request));
  return request;
}

Port::Transfer* Port::take(const RemotePort& peer, const MessageHeader& header, bool sends) {
  if (free_.empty()) free_.push_back(&transfers_.emplace_back());
  Transfer* t = free_.back();
  free_.pop_back();
  *t = Transfer{peer, sends, header, {}, nullptr, nullptr};
  return t;
}

Port::Transfer* Port::begin_send(const RemotePort& to, const MessageHeader& header, const std::byte* bytes) {
  const std::lock_guard lock(busy_);
  Transfer* t = take(to, header, true);
  t->head = send(to, Kind::head, &t->header, sizeof t->header);
  if (header.part_bytes) t->body = send(to, Kind::body, bytes, header.part_bytes);
  ++peer(to).sent;
  return t;
}

Port::Transfer* Port::begin_receive(const RemotePort& from, const MessageHeader& expected, std::byte* bytes) {
  const std::lock_guard lock(busy_);
  peer(from);
  Transfer* t = take(from, expected, false);
  t->head = receive(from, Kind::head, &t->found, sizeof t->found);
  if (expected.part_bytes) t->body = receive(from, Kind::body, bytes, expected.part_bytes);
  return t;
}

void Port::wait(Transfer* t, const std::string& group) {
  const std::lock_guard lock(busy_);
  await(t->head, *t, group);
  if (!t->sends) {
    ++peer(t->peer).had;
    compare(*t, group);
  }
  await(t->body, *t, group);
  free_.push_back(t);
}

void Port::flush(const std::string& group) {
  const std::lock_guard lock(busy_);
  const ucp_request_param_t plain{};
  Transfer all{{network_.world().rank(), lane_}, true, {}, {}, nullptr, nullptr};
  all.head = under_way(ucx_.ucp_worker_flush_nbx(ucp_worker_h(worker_), &plain), all.peer.rank, "flush");
  await(all.head, all, group);
}

void Port::attend() {
  const std::unique_lock lock(busy_, std::try_to_lock);
  // What is under way has memory that its lane takes back where it fails.
  if (lock && free_.size() == transfers_.size()) ucx_.ucp_worker_progress(ucp_worker_h(worker_));
}

void Port::await(void*& request, Transfer& t, const std::string& group) {
  const ShmWorld& world = network_.world();
  for (int idle = 0, ticks = 0; request;) {
    const ucs_status_t status = ucx_.ucp_request_check_status(request);
    if (status != UCS_INPROGRESS) {
      ucx_.ucp_request_free(std::exchange(request, nullptr));
      if (status != UCS_OK) give_up(t.peer.rank, fmt::format("[{}] {}", group, describe(t.header)), status);
    } else if (ucx_.ucp_worker_progress(ucp_worker_h(worker_))) {
      idle = 0;
    } else if (++idle > spins_) {
      if (world.failed()) world.throw_failure(fmt::format("[{}] {}", group, describe(t.header)), world.rank());
      look(t, group, ++ticks);
      sleep();
    }
  }
}

void Port::sleep() {
  if (ucx_.ucp_worker_arm(ucp_worker_h(worker_)) != UCS_OK) return;  // something has come
  pollfd ready{ready_, POLLIN, 0};
  poll(&ready, 1, int(kTick.count()));
}

void Port::look(Transfer& t, const std::string& group, int ticks) {
  const auto found = peers_.find(t.peer);
  if (found == peers_.end()) return;
  Peer& p = *found->second;
  if (p.broken != UCS_OK) give_up(t.peer.rank, fmt::format("[{}] {}", group, describe(t.header)), p.broken);
  if (t.sends || !t.head) return;
  if (ticks == kNoticeAfter && !p.own_notice_request) {
    p.own_notice = t.header;
    p.own_notice.had = p.had;
    p.own_notice_request = send(t.peer, Kind::notice, &p.own_notice, sizeof p.own_notice);
  }
  for (void** request : {&p.own_notice_request, &p.notice_request})
    if (*request && ucx_.ucp_request_check_status(*request) != UCS_INPROGRESS)
      ucx_.ucp_request_free(std::exchange(*request, nullptr));
  if (ticks <= kNoticeAfter || p.notice_request) return;
  if (p.notice.had == p.sent) refuse(t, p.notice, group);
  p.notice_request = receive(t.peer, Kind::notice, &p.notice, sizeof p.notice);
}

void Port::compare(const Transfer& t, const std::string& group) const {
  const MessageHeader &a = t.header, &b = t.found;
  const shm::Op expected = a.op == shm::Op::recv ? shm::Op::send : a.op;
  const bool same = a.group == b.group && a.epoch == b.epoch && a.sequence == b.sequence && expected == b.op &&
                    a.dtype == b.dtype && a.bytes == b.bytes;
  if (!same) refuse(t, b, group);
  check(a.part == b.part && a.part_bytes == b.part_bytes, Exit::rank,
        "[{}] {}: rank {} sends {} bytes as part {} to rank {}, which expects {} as part {}", group, describe(a),
        t.peer.rank, b.part_bytes, b.part, network_.world().rank(), a.part_bytes, a.part);
}

void Port::refuse(const Transfer& t, const MessageHeader& found, const std::string& group) const {
  const MessageHeader& own = t.header;
  std::string theirs = describe(found);
  if (found.group != own.group) theirs += fmt::format(" in another group, of {} ranks", found.members);
  if (found.sequence != own.sequence) theirs += fmt::format(" as its operation {}", found.sequence);
  if (found.epoch != own.epoch) theirs += fmt::format(" of epoch {}", found.epoch);
  std::pair<int, std::string> a{network_.world().rank(), describe(own)}, b{t.peer.rank, theirs};
  if (b.first < a.first) std::swap(a, b);  // both ranks say the same
  fail(Exit::rank, "[{}] operation {}: rank {} does {}, rank {} does {}; the ranks do not follow one plan", group,
       own.sequence, a.first, a.second, b.first, b.second);
}

// A connection that breaks is mostly a rank that died, and the exchange is about to say so.
void Port::give_up(int peer, const std::string& what, int status) const {
  const ShmWorld& world = network_.world();
  const auto end = std::chrono::steady_clock::now() + kWordOfDeath;
  while (!world.failed() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kTick);
  if (world.failed()) world.throw_failure(what, world.rank());
  fail(Exit::rank, "{}: rank {} has left or cannot be reached: {}", what, peer,
       ucx_.ucs_status_string(ucs_status_t(status)));
}

Network::Network(Exchange& exchange, const ShmWorld& world, const std::string& address)
    : exchange_(exchange), world_(world), context_(open_context(ucx(), address)) {
  std::vector<std::string> own(kLanes);
  for (int l = 0; l < kLanes; ++l) {
    if (!moves_data(Lane(l))) continue;
    ports_[size_t(l)] = std::make_unique<Port>(*this, Lane(l));
    own[size_t(l)] = ports_[size_t(l)]->introduction();
  }
  for (const std::string& text : exchange.all_gather(pack_texts(own))) {
    auto introductions = unpack_texts(text);
    check(introductions && introductions->size() == kLanes, Exit::rank, "[ucx] a rank's addresses are none");
    introductions_.push_back(*std::move(introductions));
  }
  attendant_ = std::jthread([this](const std::stop_token& over) { attend(over); });
}

// A connection is made by both ends in turn: without this, one whose lane has gone on, and waits elsewhere for the
// other, would leave it waiting for the connection.
void Network::attend(const std::stop_token& over) {
  std::mutex none;
  std::condition_variable_any tick;
  std::unique_lock lock(none);
  while (!tick.wait_for(lock, over, kAttendance, [&] { return over.stop_requested(); }))
    for (const auto& port : ports_)
      if (port) port->attend();
}

Network::~Network() {
  const bool over = is_over();
  attendant_ = {};
  if (!over) {
    // UCX 1.13 ends the process when it destroys a worker under a message half on its way or a connection half made.
    static auto* const abandoned = new std::vector<std::unique_ptr<Port>>;
    static std::mutex ranks_are_threads_in_tests;
    const std::lock_guard lock(ranks_are_threads_in_tests);
    for (auto& port : ports_) abandoned->push_back(std::move(port));
    return;
  }
  for (auto& port : ports_) port.reset();
  ucx().ucp_cleanup(ucp_context_h(context_));
}

// A rank that failed waits for nobody.
bool Network::is_over() const {
  if (world_.failed() || std::uncaught_exceptions() > 0) return false;
  try {
    exchange_.all_gather("network over");
    return true;
  } catch (const std::exception&) { return false; }
}

std::string own_address_towards(const std::string& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(address.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> to(found, freeaddrinfo);
  const Socket socket(::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  char text[NI_MAXHOST] = "";
  // Sends nothing: the kernel chooses the way.
  if (connect(socket.fd(), to->ai_addr, to->ai_addrlen) != 0 ||
      getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text;
}

}  // namespace trainer
