#include "app/place.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "app/host_list.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/host.h"

namespace trainer {
namespace {

constexpr int64_t kAny = std::numeric_limits<int32_t>::max();
constexpr int kCandidates = 8, kFirstPort = 20000, kPorts = 12000;          // Linux hands out 32768 and above
constexpr uint32_t kInteractiveStep = 4294967290, kBatchStep = 4294967291;  // Slurm's ids of steps without tasks

// The variables of one launcher. `key` is the variable that made us believe in it.
class Variables {
 public:
  Variables(const Environment& all, std::string launcher, std::string key)
      : all_(all), launcher_(std::move(launcher)), key_(std::move(key)) {}

  const std::string* find(std::string_view name) const {
    const auto at = all_.find(name);
    return at == all_.end() ? nullptr : &at->second;
  }
  const std::string& text(std::string_view name) const {
    const std::string* value = find(name);
    check(value && !value->empty(), Exit::usage, "{} sets {}, but {} is {}: wanted both, or neither", launcher_, key_,
          name, value ? "empty" : "missing");
    return *value;
  }
  // In [low, high].
  int64_t number(std::string_view name, int64_t low, int64_t high = kAny) const {
    const std::string& digits = text(name);
    int64_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    const bool fine = error == std::errc() && end == digits.data() + digits.size() && n >= low && n <= high;
    const std::string range =
        high == kAny ? fmt::format("of at least {}", low) : fmt::format("from {} to {}", low, high);
    check(fine, Exit::usage, "{} sets {}: wanted a number {}, found '{}'", launcher_, name, range, digits);
    return n;
  }
  int64_t number_or(std::string_view name, int64_t otherwise) const { return find(name) ? number(name, 0) : otherwise; }
  Place place() const {
    Place p;
    p.launcher = launcher_;
    return p;
  }

 private:
  const Environment& all_;
  std::string launcher_, key_;
};

// The first of `names` that is set.
std::optional<std::string> first_set(const Environment& e, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (e.contains(name)) return name;
  return {};
}

std::optional<Place> place_of_local_child(const Environment& e, const std::string& this_host) {
  const auto key = first_set(e, {kRankVariable, kRanksVariable, kJobVariable});
  if (!key) return {};
  const Variables v(e, "--ranks", *key);
  Place p = v.place();
  p.world = p.local_size = int(v.number(kRanksVariable, 1));
  p.rank = p.local_rank = int(v.number(kRankVariable, 0, p.world - 1));
  p.job = v.text(kJobVariable);
  p.host = p.coordinator = this_host;
  return p;
}

bool is_step_task(const Environment& e) {
  const auto id = e.find("SLURM_STEP_ID");
  if (id != e.end() && (id->second == std::to_string(kInteractiveStep) || id->second == std::to_string(kBatchStep)))
    return false;
  return first_set(e, {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_ID", "SLURM_STEP_TASKS_PER_NODE"})
      .has_value();
}

// mpirun and torchrun in a Slurm job may be started (mpirun: start their daemons) by a step of one task per node, whose
// variables the ranks inherit. Those speak of the daemons.
bool is_step_of_daemons(const Environment& e) {
  const auto counts = e.find("SLURM_STEP_TASKS_PER_NODE");
  if (counts == e.end() || !first_set(e, {"OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID"})) return false;
  const std::vector<int> tasks = expand_task_counts(counts->second);
  return std::all_of(tasks.begin(), tasks.end(), [](int n) { return n == 1; });
}

std::optional<Place> place_of_slurm(const Environment& e) {
  if (!is_step_task(e) || is_step_of_daemons(e)) return {};
  const Variables v(
      e, "Slurm",
      *first_set(e, {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_ID", "SLURM_STEP_TASKS_PER_NODE"}));
  Place p = v.place();
  p.world = int(v.number("SLURM_STEP_NUM_TASKS", 1));
  p.rank = int(v.number("SLURM_PROCID", 0, p.world - 1));
  const std::vector<std::string> hosts = expand_host_list(v.text("SLURM_STEP_NODELIST"));
  const std::vector<int> tasks = expand_task_counts(v.text("SLURM_STEP_TASKS_PER_NODE"));
  check(tasks.size() == hosts.size(), Exit::usage,
        "Slurm sets SLURM_STEP_TASKS_PER_NODE to '{}', {} nodes, but SLURM_STEP_NODELIST '{}' has {}",
        v.text("SLURM_STEP_TASKS_PER_NODE"), tasks.size(), v.text("SLURM_STEP_NODELIST"), hosts.size());
  int64_t sum = 0;
  for (const int n : tasks) sum += n;
  check(sum == p.world, Exit::usage,
        "Slurm sets SLURM_STEP_NUM_TASKS to {}, but SLURM_STEP_TASKS_PER_NODE '{}' adds up to {}", p.world,
        v.text("SLURM_STEP_TASKS_PER_NODE"), sum);
  const int node = int(v.number("SLURM_NODEID", 0, int64_t(hosts.size()) - 1));
  p.local_size = tasks[size_t(node)];
  p.local_rank = int(v.number("SLURM_LOCALID", 0, p.local_size - 1));
  p.host = hosts[size_t(node)];
  p.job = fmt::format("Slurm {}.{}", v.number("SLURM_JOB_ID", 0), v.number("SLURM_STEP_ID", 0));
  p.restart = v.number_or("SLURM_RESTART_COUNT", 0);
  const std::string* distribution = v.find("SLURM_DISTRIBUTION");
  const bool first_has_rank_0 = !distribution || !distribution->starts_with("arbitrary");
  if (first_has_rank_0) p.coordinator = hosts[0];
  return p;
}

std::optional<Place> place_of_open_mpi(const Environment& e, const std::string& this_host) {
  const auto key = first_set(
      e, {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (!key) return {};
  const Variables v(e, "Open MPI", *key);
  Place p = v.place();
  p.world = int(v.number("OMPI_COMM_WORLD_SIZE", 1));
  p.rank = int(v.number("OMPI_COMM_WORLD_RANK", 0, p.world - 1));
  p.local_size = int(v.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, p.world));
  p.local_rank = int(v.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, p.local_size - 1));
  p.host = this_host;
  p.job = "Open MPI " + v.text(v.find("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
  if (p.local_size == p.world) p.coordinator = this_host;
  return p;
}

std::optional<Place> place_of_torchrun(const Environment& e, const std::string& this_host) {
  const auto key = first_set(e, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  if (!key) return {};
  const Variables v(e, "the environment", *key);
  Place p = v.place();
  p.launcher = "RANK and WORLD_SIZE";
  p.world = int(v.number("WORLD_SIZE", 1));
  p.rank = int(v.number("RANK", 0, p.world - 1));
  const std::string& address = v.text("MASTER_ADDR");
  if (first_set(e, {"LOCAL_RANK", "LOCAL_WORLD_SIZE"})) {
    p.local_size = int(v.number("LOCAL_WORLD_SIZE", 1, p.world));
    p.local_rank = int(v.number("LOCAL_RANK", 0, p.local_size - 1));
  } else {
    const bool one_host =
        p.world == 1 || address == "localhost" || address == "127.0.0.1" || address == "::1" || address == this_host;
    p.local_size = one_host ? p.world : 0;
    p.local_rank = one_host ? p.rank : 0;
  }
  p.host = this_host;
  const std::string* id = v.find("TORCHELASTIC_RUN_ID");
  p.job = fmt::format("{}:{} {}", address, v.number("MASTER_PORT", 1, 65535), id ? *id : "");
  p.restart = v.number_or("TORCHELASTIC_RESTART_COUNT", 0);
  return p;
}

// A variable that speaks of the same thing as `p` must agree with it.
void check_agrees(const Environment& e, const Place& p, const char* name, int wanted) {
  const auto at = e.find(name);
  check(at == e.end() || at->second == std::to_string(wanted), Exit::usage,
        "{} says rank {} of {}, but {} is '{}': unset the variables of the launcher that did not start this process",
        p.launcher, p.rank, p.world, name, at == e.end() ? "" : at->second);
}

// MASTER_ADDR and MASTER_PORT, where they are set, overrule what we think.
void set_coordinator(const Environment& e, Place& p) {
  const Variables v(e, "the environment", "MASTER_ADDR");
  if (v.find("MASTER_ADDR")) p.coordinator = v.text("MASTER_ADDR");
  check(!p.coordinator.empty(), Exit::usage,
        "{} does not say on which host rank 0 of {} is: set MASTER_ADDR to that host's name or address on every rank",
        p.launcher, p.world);
  p.ports = candidate_ports(p.job, p.restart);
  if (!v.find("MASTER_PORT")) return;
  p.ports.clear();
  const int64_t first = v.number("MASTER_PORT", 1, 65535);
  for (int64_t port = first; port < first + kCandidates && port <= 65535; ++port) p.ports.push_back(uint16_t(port));
}

// No rank of any launcher: is it meant to be alone?
void check_nobody_asks(const Environment& e) {
  for (const char* name : {"SLURM_NTASKS", "PMI_SIZE"}) {
    const auto tasks = e.find(name);
    check(tasks == e.end() || tasks->second == "1", Exit::usage,
          "{} asks for {} tasks, but this process is none of them: start it with srun, mpirun or RANK and WORLD_SIZE, "
          "or say --ranks N for ranks of its own",
          name, tasks == e.end() ? "" : tasks->second);
  }
  check(!e.contains("PMIX_RANK"), Exit::usage,
        "PMIX_RANK is set, but OMPI_COMM_WORLD_SIZE, which has the number of ranks, is not: start with mpirun or srun, "
        "or set RANK "
        "and WORLD_SIZE");
}

}  // namespace

Environment environment() {
  Environment all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != text.npos) all.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

std::vector<uint16_t> candidate_ports(const std::string& job, int64_t restart) {
  const uint64_t hash = scramble(hash_text(job) + uint64_t(restart));
  std::vector<uint16_t> ports;
  for (int i = 0; i < kCandidates; ++i) ports.push_back(uint16_t(kFirstPort + int(hash % kPorts) + i));
  return ports;
}

Place find_place(const Environment& e, const std::string& this_host) {
  if (auto child = place_of_local_child(e, this_host)) {
    child->ports = candidate_ports(child->job, 0);
    return *child;
  }
  auto place = place_of_slurm(e);
  if (!place) place = place_of_open_mpi(e, this_host);
  if (!place) place = place_of_torchrun(e, this_host);
  if (!place) {
    check_nobody_asks(e);
    Place alone;
    alone.host = alone.coordinator = this_host;
    return alone;
  }
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"}) check_agrees(e, *place, name, place->world);
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "RANK"}) check_agrees(e, *place, name, place->rank);
  set_coordinator(e, *place);
  return *place;
}

Place find_place() { return find_place(environment(), host_name()); }

void check_alone(const Environment& e, int ranks) {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", is_step_task(e) ? "SLURM_STEP_NUM_TASKS" : "PMI_SIZE"}) {
    const auto at = e.find(name);
    check(at == e.end() || at->second == "1", Exit::usage,
          "--ranks {} starts ranks of its own, but this process is one of {} already ({}): use one of the two", ranks,
          at == e.end() ? "" : at->second, name);
  }
}

}  // namespace trainer
