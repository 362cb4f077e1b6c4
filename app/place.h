// Who am I: the world this process was started in.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trainer {

struct Place {
  int world = 1, rank = 0;
  // Ranks of this host, and which of them this is. local_size 0: the launcher did not say; Rendezvous finds out.
  int local_rank = 0, local_size = 1;
  std::string launcher;         // "--ranks", "Slurm", "Open MPI", "RANK and WORLD_SIZE"; empty: nobody, a world of one
  std::string host;             // this host, as the launcher calls it
  std::string job;              // tells this start from others that run or ran: job and step
  int64_t restart = 0;          // how often the launcher has started this job again
  std::string coordinator;      // the host of rank 0; equal to `host` on that host
  std::vector<uint16_t> ports;  // where rank 0 listens: on the first of them that is free
};

using Environment = std::map<std::string, std::string, std::less<>>;
Environment environment();  // this process's

// From the variables of --ranks (below), Slurm, Open MPI or torchrun (RANK, WORLD_SIZE), in this order;
// docs/launching.md lists them. A variable that is missing, malformed or contradicts another is Error(usage) that names
// it; so are tasks that a launcher was asked for where this process is none of them: never a silent world of one.
// `this_host`: the name of this machine.
Place find_place(const Environment&, const std::string& this_host);
Place find_place();  // of this process

// REQUIRES (Error(usage)) that no launcher has started more than this process: what `--ranks` asks for.
void check_alone(const Environment&, int ranks);

// What `--ranks` tells the processes that it starts.
inline constexpr const char* kRankVariable = "TRAINER_LOCAL_RANK";
inline constexpr const char* kRanksVariable = "TRAINER_LOCAL_RANKS";
inline constexpr const char* kJobVariable = "TRAINER_LOCAL_JOB";

// Eight ports below the range that Linux hands out by itself, by a hash of the job: two jobs rarely meet on one, and
// where they do the handshake tells them apart.
std::vector<uint16_t> candidate_ports(const std::string& job, int64_t restart);

}  // namespace trainer
