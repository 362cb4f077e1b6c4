#include "io/failpoints.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr Failpoint kPoints[] = {
    {"step_begin", "", "before a training step"},
    {"gradient", "nan", "after a step's backward passes (on all ranks alike)"},
    {"step_end", "", "after a training step, before its metrics"},
    {"snapshot_begin", "eio,enospc", "save: before the first byte of state is copied"},
    {"snapshot_copy", "eio,enospc", "save: before each block of state is copied"},
    {"snapshot_end", "eio,enospc", "save: every byte of state is copied"},
    {"shard_write", "eio,enospc,flip", "save: before each block's write is submitted"},
    {"shard_completion", "eio,enospc", "save: after each block's completion"},
    {"shard_written", "eio,enospc", "save: every block is written, nothing synced"},
    {"shard_synced", "eio,enospc", "save: the shard is synced"},
    {"vote", "eio,enospc", "save: the rank's shard is done, before it says so"},
    {"vote_counted", "", "save: all shards are done, before the manifest exists"},
    {"manifest_write", "eio,enospc", "save: half of the manifest is written"},
    {"manifest_written", "eio,enospc", "save: the manifest is written, not synced"},
    {"manifest_synced", "eio,enospc", "save: the manifest is synced under its temporary name"},
    {"manifest_renamed", "eio,enospc", "save: the manifest has its name"},
    {"directory_synced", "eio,enospc", "save: the step's directory is synced under its temporary name"},
    {"step_renamed", "", "save: the step's directory has its name"},
    {"parent_synced", "", "save: the step is durable"},
    {"latest_write", "", "save: the hint is written under its temporary name"},
    {"latest_renamed", "", "save: the hint has its name"},
    {"gc_begin", "", "save: before old steps are looked for"},
    {"gc_delete", "", "save: an old step is out of the way, before it is deleted"},
    {"save_end", "", "save: all ranks know that the step is durable"},
    {"load_begin", "eio", "load: before the first byte of state is read"},
    {"load_block", "eio,flip", "load: after each block is read, before its checksum"},
    {"file_write", "eio,enospc,short", "each request of a file engine to write"},
    {"file_read", "eio,short", "each request of a file engine to read"},
};

enum class Action : uint8_t { kill, stop, exit, hang, delay, eio, enospc, short_bytes, flip, nan };
struct ActionName {
  std::string_view name;
  Action action;
  bool has_number, everywhere;
};
constexpr ActionName kActions[] = {
    {"kill", Action::kill, false, true},      {"stop", Action::stop, false, true},
    {"exit", Action::exit, false, true},      {"hang", Action::hang, false, true},
    {"delay", Action::delay, true, true},     {"eio", Action::eio, false, false},
    {"enospc", Action::enospc, false, false}, {"short", Action::short_bytes, true, false},
    {"flip", Action::flip, true, false},      {"nan", Action::nan, false, false},
};

struct Request {
  std::string_view point;  // of kPoints
  std::optional<int64_t> step, rank, n;
  Action action = Action::kill;
  uint64_t number = 0;
  int64_t visits = 0;
};

// The one global of fault injection: a fault must be reachable from any depth without a parameter on every function
// between.
struct Requests {
  std::atomic<bool> any = false;
  std::mutex mutex;
  std::vector<Request> list;
};
Requests& requests() {
  static Requests all;
  return all;
}

std::pair<std::string_view, std::string_view> split(std::string_view text, char at) {
  const size_t i = text.find(at);
  if (i == std::string_view::npos) return {text, {}};
  return {text.substr(0, i), text.substr(i + 1)};
}

template <class T>
T parse_number(std::string_view text, std::string_view request) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc{} && end == text.data() + text.size() && !text.empty(), Exit::usage,
        "TRAINER_FAIL '{}': wanted a number, found '{}'", request, text);
  return value;
}

bool honours(const Failpoint& point, std::string_view action) {
  for (std::string_view rest = point.honours; !rest.empty();) {
    const auto [first, tail] = split(rest, ',');
    if (first == action) return true;
    rest = tail;
  }
  return false;
}

void parse_action(std::string_view text, std::string_view whole, const Failpoint& point, Request& request) {
  const auto [name, number] = split(text, '=');
  const auto* known = std::find_if(std::begin(kActions), std::end(kActions), [&](auto& a) { return a.name == name; });
  check(known != std::end(kActions), Exit::usage,
        "TRAINER_FAIL '{}': wanted an action (kill, stop, exit, hang, delay=, eio, enospc, short=, flip=, nan), found "
        "'{}'",
        whole, text);
  check(known->everywhere || honours(point, name), Exit::usage, "TRAINER_FAIL '{}': point {} cannot do '{}'", whole,
        point.name, name);
  request.action = known->action;
  if (known->has_number) request.number = parse_number<uint64_t>(number, whole);
}

void parse_conditions(std::string_view text, std::string_view whole, Request& request) {
  while (!text.empty()) {
    const auto [first, rest] = split(text, ',');
    const auto [key, value] = split(first, '=');
    const int64_t number = parse_number<int64_t>(value, whole);
    if (key == "step") request.step = number;
    else if (key == "rank") request.rank = number;
    else if (key == "n") request.n = number;
    else fail(Exit::usage, "TRAINER_FAIL '{}': wanted a condition step=, rank= or n=, found '{}'", whole, first);
    text = rest;
  }
}

Request parse_request(std::string_view text) {
  const size_t colon = text.rfind(':');
  check(colon != std::string_view::npos, Exit::usage, "TRAINER_FAIL '{}': wanted point@conditions:action, found no ':'",
        text);
  const auto [name, conditions] = split(text.substr(0, colon), '@');
  const auto* point = std::find_if(std::begin(kPoints), std::end(kPoints), [&](auto& p) { return p.name == name; });
  check(point != std::end(kPoints), Exit::usage,
        "TRAINER_FAIL '{}': there is no point '{}'; `trainer --list-failpoints` lists them", text, name);
  Request request;
  request.point = point->name;
  parse_conditions(conditions, text, request);
  parse_action(text.substr(colon + 1), text, *point, request);
  return request;
}

bool matches(Request& request, std::string_view point, const FailSite& site) {
  if (request.point != point) return false;
  if (request.step && *request.step != site.step) return false;
  if (request.rank && *request.rank != site.rank) return false;
  ++request.visits;
  return !request.n || *request.n == request.visits;
}

void act(const Request& request, Fault& fault) {
  using namespace std::chrono_literals;
  switch (request.action) {
    case Action::kill: raise(SIGKILL); break;
    case Action::stop: raise(SIGSTOP); break;
    case Action::exit: _exit(int(Exit::rank));
    case Action::hang:
      for (;;) std::this_thread::sleep_for(1h);
    case Action::delay: std::this_thread::sleep_for(std::chrono::milliseconds(request.number)); break;
    case Action::eio: fault.error = EIO; break;
    case Action::enospc: fault.error = ENOSPC; break;
    case Action::short_bytes: fault.short_bytes = request.number; break;
    case Action::flip: fault.flip_bit = request.number; break;
    case Action::nan: fault.nan = true; break;
  }
}

}  // namespace

std::span<const Failpoint> failpoints() { return kPoints; }

void set_failpoints(std::string_view text) {
  std::vector<Request> list;
  while (!text.empty()) {
    const auto [first, rest] = split(text, ';');
    if (!first.empty()) list.push_back(parse_request(first));
    text = rest;
  }
  Requests& all = requests();
  const std::scoped_lock lock(all.mutex);
  all.list = std::move(list);
  all.any = !all.list.empty();
}

Fault failpoint(std::string_view point, FailSite site) {
  assert(std::any_of(std::begin(kPoints), std::end(kPoints), [&](auto& p) { return p.name == point; }));
  Fault fault;
  Requests& all = requests();
  if (!all.any.load(std::memory_order_relaxed)) return fault;
  std::vector<Request> due;  // acted on without the lock: a hang must not stop the other ranks' points
  {
    const std::scoped_lock lock(all.mutex);
    for (Request& request : all.list)
      if (matches(request, point, site)) due.push_back(request);
  }
  for (const Request& request : due) act(request, fault);
  return fault;
}

}  // namespace trainer
