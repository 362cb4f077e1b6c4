#include "app/ranks_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "parallel/groups.h"

namespace trainer {
namespace {

using Members = std::vector<int>;

std::vector<Members> groups_along(Axis axis, const std::vector<Mesh>& world) {
  std::vector<Members> groups;
  std::vector<bool> placed(world.size());
  for (const Mesh& m : world) {
    if (placed[size_t(m.rank())]) continue;
    groups.push_back(group_of(m, axis).members);
    for (const int r : groups.back()) placed[size_t(r)] = true;
  }
  return groups;
}

// "0-7", "0, 8, 16, 24", "0, 8, ... 56 (8 ranks)".
std::string short_list(const Members& m) {
  const int step = m.size() > 1 ? m[1] - m[0] : 1;
  if (m.size() > 2 && step == 1) return fmt::format("{}-{}", m.front(), m.back());
  if (m.size() <= 8) return fmt::format("{}", fmt::join(m, ", "));
  return fmt::format("{}, {}, ... {} ({} ranks)", m[0], m[1], m.back(), m.size());
}

bool leaves_host(const Members& m, int per_host) {
  return std::any_of(m.begin(), m.end(), [&](int r) { return r / per_host != m[0] / per_host; });
}
// The group has the same local ranks on each of its hosts.
bool rail_aligned(const Members& m, int per_host) {
  std::map<int, std::set<int>> rails;  // by host
  for (int r : m) rails[r / per_host].insert(r % per_host);
  return std::all_of(rails.begin(), rails.end(), [&](const auto& of) { return of.second == rails.begin()->second; });
}

// What a group's messages cross.
std::string way_of(const std::vector<Members>& groups, int per_host) {
  size_t hosts = 1;
  for (const Members& m : groups) {
    std::set<int> of;
    for (int r : m) of.insert(r / per_host);
    hosts = std::max(hosts, of.size());
  }
  if (hosts == 1) return "within a host: NVLink or shared memory";
  const bool rails =
      std::all_of(groups.begin(), groups.end(), [&](const Members& m) { return rail_aligned(m, per_host); });
  return fmt::format("over {} hosts: {}", hosts, rails ? "each local rank's own NIC" : "NICs of several local ranks");
}

void print_axis(std::ostream& out, Axis axis, const std::vector<Members>& groups, int per_host) {
  out << fmt::format("{} groups ({}):", name_of(axis), groups.size());
  for (size_t g = 0; g < std::min<size_t>(groups.size(), 4); ++g) out << fmt::format(" [{}]", short_list(groups[g]));
  out << (groups.size() > 4 ? " ...; " : "; ") << way_of(groups, per_host) << "\n";
  const auto count = [&](auto&& is) { return std::count_if(groups.begin(), groups.end(), is); };
  const auto outside = count([&](const Members& m) { return leaves_host(m, per_host); });
  if (axis == Axis::tp && outside > 0)
    out << fmt::format(
        "warning: {} of {} tp groups leave their host of {} ranks: put tp first in parallel.order, or "
        "use a tp that divides {}\n",
        outside, groups.size(), per_host, per_host);
  if (axis != Axis::pp && axis != Axis::dp) return;
  const auto mixed = count([&](const Members& m) { return !rail_aligned(m, per_host); });
  if (mixed > 0)
    out << fmt::format(
        "warning: {} of {} {} groups have other local ranks on one host than on another (not rail-aligned)\n", mixed,
        groups.size(), name_of(axis));
}

}  // namespace

void print_ranks_map(std::ostream& out, const RunSpec& spec, int world, int per_host) {
  std::vector<Mesh> meshes;
  for (int r = 0; r < world; ++r) meshes.push_back(Mesh::of(spec, world, r));
  out << fmt::format("{:>6} {:>6} {:>6}   {:>4} {:>4} {:>4} {:>4}\n", "rank", "host", "local", "pp", "dp", "cp", "tp");
  for (const Mesh& m : meshes)
    out << fmt::format("{:>6} {:>6} {:>6}   {:>4} {:>4} {:>4} {:>4}\n", m.rank(), m.rank() / per_host,
                       m.rank() % per_host, m.stage, m.replica, m.context, m.slice);
  out << "\n";
  for (const Axis axis : {Axis::pp, Axis::dp, Axis::cp, Axis::tp})
    if (const auto groups = groups_along(axis, meshes); groups[0].size() > 1) print_axis(out, axis, groups, per_host);
}

}  // namespace trainer
