// A program for tests of starting ranks: launch_main ACTION [RANK [CODE]] [--ranks N] does what `trainer` does to find
// its place and the others, and then, on every rank:
//   place          prints its place as one line
//   meet           meets the others, and prints who shares its host
//   end RANK CODE  meets the others; RANK leaves with exit code CODE, the others wait for it
//   kill RANK      meets the others; RANK kills itself, the others wait for it
//   wait           meets the others, prints "ready", and waits for a signal: exit code 17
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "app/connect.h"
#include "app/cores.h"
#include "app/launch.h"
#include "app/signals.h"
#include "core/base/error.h"

namespace trainer {
namespace {

void print_place(const Place& p, const std::string& more) {
  std::cout << fmt::format("{} rank {}/{} local {}/{} host {} coordinator {} restart {} ports {} job '{}'{}\n",
                           p.launcher, p.rank, p.world, p.local_rank, p.local_size, p.host, p.coordinator, p.restart,
                           p.ports.empty() ? 0 : p.ports.front(), p.job, more)
            << std::flush;
}

int act(const std::string& action, int rank, int code) {
  const Place place = find_place();
  if (action == "place") return print_place(place, ""), 0;
  watch_signals();
  const auto exchange = connect_ranks(place, "spec");
  const auto all = exchange->all_gather(std::to_string(allowed_cores().size()));
  if (action == "meet") print_place(place, fmt::format(" met {} cores {}", all.size(), all[size_t(place.rank)]));
  if (action == "kill" && place.rank == rank) kill(getpid(), SIGKILL);
  if (action == "end" && place.rank == rank) fail(Exit(code), "as asked");
  try {
    if (action == "wait" && place.rank == 0) std::cout << "ready\n" << std::flush;
    while (action == "wait" && stop_signal() == 0) usleep(1000);
    if (action == "kill" || action == "end") exchange->all_gather("");
  } catch (const std::exception& e) {
    exchange->leave(e.what());
    throw;
  }
  exchange->leave("");
  return action == "wait" ? 17 : 0;
}

int run(int argc, char** argv) {
  std::vector<std::string> words;
  int ranks = 0;
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--ranks") ranks = std::atoi(argv[++i]);
    else words.push_back(argv[i]);
  if (ranks > 1 && !is_launched()) {
    check_alone(environment(), ranks);
    return launch_local(ranks, argv);
  }
  words.resize(3);
  return act(words[0], std::atoi(words[1].c_str()), std::atoi(words[2].c_str()));
}

}  // namespace
}  // namespace trainer

int main(int argc, char** argv) {
  try {
    return trainer::run(argc, argv);
  } catch (const trainer::Error& e) {
    std::cerr << fmt::format("launch_main: {}\n", e.what());
    return int(e.code());
  }
}
