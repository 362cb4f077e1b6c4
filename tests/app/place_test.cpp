#include "app/place.h"

#include <catch2/catch.hpp>

#include "app/cores.h"
#include "core/base/error.h"

namespace trainer {
namespace {

// A task of `srun -N2 -n4` as Slurm 22.05 starts it: three tasks on the first node, one on the second.
Environment slurm_task() {
  return {{"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "3"},
          {"SLURM_NTASKS", "4"},         {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_PROCID", "1"},         {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "0"},         {"SLURM_STEP_NODELIST", "n[0-1]"},
          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
          {"SLURMD_NODENAME", "n0"}};
}
Environment open_mpi_rank() {
  return {{"OMPI_COMM_WORLD_SIZE", "2"},       {"OMPI_COMM_WORLD_RANK", "1"},    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"PMIX_NAMESPACE", "1245970433"}, {"PMIX_RANK", "1"}};
}
Environment torchrun_rank() {
  return {{"RANK", "5"},         {"WORLD_SIZE", "8"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "n7"}, {"MASTER_PORT", "29500"}};
}
Environment with(Environment e, const std::string& name, const std::string& value) {
  e[name] = value;
  return e;
}
Environment without(Environment e, const std::string& name) {
  e.erase(name);
  return e;
}
// The message of the Error(usage); fails the test where there is none.
std::string refusal(const Environment& e) {
  try {
    find_place(e, "here");
  } catch (const Error& error) {
    CHECK(error.code() == Exit::usage);
    return error.what();
  }
  FAIL("a place was found");
  return "";
}

TEST_CASE("nobody asks: a world of one", "[place]") {
  const Place p = find_place({{"HOME", "/root"}}, "here");
  REQUIRE(p.world == 1);
  REQUIRE(p.local_size == 1);
  REQUIRE(p.launcher.empty());
}

TEST_CASE("Slurm: uneven tasks, the coordinator is the first host of the step", "[place]") {
  Place p = find_place(slurm_task(), "here");
  REQUIRE((p.world == 4 && p.rank == 1 && p.local_rank == 1 && p.local_size == 3));
  REQUIRE(p.launcher == "Slurm");
  REQUIRE((p.host == "n0" && p.coordinator == "n0" && p.job == "Slurm 12.3" && p.restart == 0));
  REQUIRE(p.ports == candidate_ports("Slurm 12.3", 0));
  Environment last = with(with(with(slurm_task(), "SLURM_PROCID", "3"), "SLURM_LOCALID", "0"), "SLURM_NODEID", "1");
  p = find_place(with(last, "SLURM_RESTART_COUNT", "2"), "here");
  REQUIRE((p.rank == 3 && p.local_rank == 0 && p.local_size == 1 && p.host == "n1" && p.coordinator == "n0"));
  REQUIRE(p.restart == 2);
  REQUIRE(p.ports != candidate_ports("Slurm 12.3", 0));
}

TEST_CASE("Slurm: half-set, malformed and contradicting variables are named", "[place]") {
  for (const char* name : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID",
                           "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}) {
    INFO(name);
    REQUIRE_THAT(refusal(without(slurm_task(), name)), Catch::Contains(name));
    REQUIRE_THAT(refusal(with(slurm_task(), name, "")), Catch::Contains(name));
  }
  REQUIRE(refusal(with(slurm_task(), "SLURM_PROCID", "4")) ==
          "Slurm sets SLURM_PROCID: wanted a number from 0 to 3, found '4'");
  REQUIRE_THAT(refusal(with(slurm_task(), "SLURM_PROCID", "1x")), Catch::Contains("'1x'"));
  REQUIRE_THAT(refusal(with(slurm_task(), "SLURM_PROCID", "-1")), Catch::Contains("'-1'"));
  REQUIRE_THAT(refusal(with(slurm_task(), "SLURM_STEP_NUM_TASKS", "5")), Catch::Contains("adds up to 4"));
  REQUIRE_THAT(refusal(with(slurm_task(), "SLURM_STEP_NODELIST", "n[0-2]")), Catch::Contains("has 3"));
  REQUIRE_THAT(refusal(with(slurm_task(), "SLURM_STEP_NODELIST", "n[0-")), Catch::Contains("not closed"));
  REQUIRE_THAT(refusal(with(slurm_task(), "SLURM_LOCALID", "3")), Catch::Contains("from 0 to 2"));
  REQUIRE_THAT(refusal(with(slurm_task(), "WORLD_SIZE", "8")), Catch::Contains("WORLD_SIZE is '8'"));
  REQUIRE_THAT(refusal(with(slurm_task(), "RANK", "0")), Catch::Contains("RANK is '0'"));
  REQUIRE_THAT(refusal(with(slurm_task(), "SLURM_DISTRIBUTION", "arbitrary")), Catch::Contains("MASTER_ADDR"));
}

TEST_CASE("Slurm: a job's shell is no task", "[place]") {
  const Environment shell{{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "6"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  REQUIRE_THAT(refusal(shell), Catch::Contains("SLURM_NTASKS asks for 6 tasks") && Catch::Contains("srun"));
  REQUIRE(find_place(with(shell, "SLURM_NTASKS", "1"), "here").world == 1);
  REQUIRE(find_place(without(shell, "SLURM_NTASKS"), "here").world == 1);
  // The shell that salloc starts on the first node is a step, with an id of its own.
  Environment interactive = with(slurm_task(), "SLURM_STEP_ID", "4294967290");
  REQUIRE_THAT(refusal(interactive), Catch::Contains("SLURM_NTASKS asks for 4"));
}

TEST_CASE("MASTER_ADDR and MASTER_PORT overrule what Slurm implies", "[place]") {
  const Place p = find_place(with(with(slurm_task(), "MASTER_ADDR", "10.0.0.9"), "MASTER_PORT", "65530"), "here");
  REQUIRE(p.coordinator == "10.0.0.9");
  REQUIRE(p.ports == std::vector<uint16_t>{65530, 65531, 65532, 65533, 65534, 65535});
  REQUIRE_THAT(refusal(with(slurm_task(), "MASTER_PORT", "70000")), Catch::Contains("MASTER_PORT"));
}

TEST_CASE("Open MPI on one host needs nothing else, on several MASTER_ADDR", "[place]") {
  const Place p = find_place(open_mpi_rank(), "here");
  REQUIRE((p.world == 2 && p.rank == 1 && p.local_rank == 1 && p.local_size == 2 && p.coordinator == "here"));
  REQUIRE((p.launcher == "Open MPI" && p.job == "Open MPI 1245970433"));
  Environment two_hosts =
      with(with(open_mpi_rank(), "OMPI_COMM_WORLD_LOCAL_SIZE", "1"), "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  REQUIRE_THAT(refusal(two_hosts), Catch::Contains("set MASTER_ADDR"));
  REQUIRE(find_place(with(two_hosts, "MASTER_ADDR", "n1"), "here").coordinator == "n1");
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"})
    REQUIRE_THAT(refusal(without(open_mpi_rank(), name)), Catch::Contains(name));
}

TEST_CASE("mpirun in a Slurm job: its ranks inherit the variables of its daemons' step", "[place]") {
  Environment e = open_mpi_rank();
  for (const auto& [name, value] : slurm_task()) e[name] = value;
  REQUIRE_THAT(refusal(e), Catch::Contains("Slurm says rank 1 of 4, but OMPI_COMM_WORLD_SIZE is '2'"));
  e["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)";
  REQUIRE(find_place(e, "here").launcher == "Open MPI");
  // In the batch script itself there is no step.
  Environment batch = with(open_mpi_rank(), "SLURM_JOB_ID", "12");
  REQUIRE(find_place(with(batch, "SLURM_NTASKS", "6"), "here").world == 2);
}

TEST_CASE("torchrun's variables", "[place]") {
  Place p = find_place(torchrun_rank(), "here");
  REQUIRE((p.world == 8 && p.rank == 5 && p.local_rank == 1 && p.local_size == 4 && p.coordinator == "n7"));
  REQUIRE((p.ports.size() == 8 && p.ports.front() == 29500 && p.ports.back() == 29507));
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    INFO(name);
    REQUIRE_THAT(refusal(without(torchrun_rank(), name)), Catch::Contains(name));
  }
  // Without the local ones the rendezvous finds out, or one host makes it plain.
  const Environment four = without(without(torchrun_rank(), "LOCAL_RANK"), "LOCAL_WORLD_SIZE");
  REQUIRE(find_place(four, "here").local_size == 0);
  p = find_place(with(four, "MASTER_ADDR", "127.0.0.1"), "here");
  REQUIRE((p.local_size == 8 && p.local_rank == 5));
  REQUIRE_THAT(refusal({{"MASTER_ADDR", "n7"}}), Catch::Contains("WORLD_SIZE"));
  REQUIRE_THAT(refusal({{"WORLD_SIZE", "2"}}), Catch::Contains("RANK"));
  REQUIRE_THAT(refusal(with(torchrun_rank(), "RANK", "8")), Catch::Contains("from 0 to 7"));
}

TEST_CASE("launchers that tell no world are named", "[place]") {
  REQUIRE_THAT(refusal({{"PMIX_RANK", "0"}}), Catch::Contains("OMPI_COMM_WORLD_SIZE"));
  REQUIRE_THAT(refusal({{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}}), Catch::Contains("PMI_SIZE asks for 4"));
}

TEST_CASE("children of --ranks come before every launcher; --ranks wants to be alone", "[place]") {
  Environment e = with(with(with(slurm_task(), kRankVariable, "2"), kRanksVariable, "3"), kJobVariable, "local 7");
  const Place p = find_place(e, "here");
  REQUIRE((p.world == 3 && p.rank == 2 && p.local_rank == 2 && p.local_size == 3 && p.coordinator == "here"));
  REQUIRE_THAT(refusal(without(e, kJobVariable)), Catch::Contains(kJobVariable));
  REQUIRE_THROWS_WITH(check_alone(slurm_task(), 2), Catch::Contains("one of 4 already (SLURM_STEP_NUM_TASKS)"));
  REQUIRE_THROWS_WITH(check_alone(open_mpi_rank(), 2), Catch::Contains("OMPI_COMM_WORLD_SIZE"));
  REQUIRE_NOTHROW(check_alone({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "6"}}, 2));
}

TEST_CASE("cores: bound ranks keep theirs, others share evenly", "[place]") {
  REQUIRE(divide_cores({{0, 1}, {2, 3}}, 1).cores == std::vector<int>{2, 3});
  REQUIRE(divide_cores({{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}, 1).cores == std::vector<int>{2, 3});
  REQUIRE(divide_cores({{4, 6}, {4, 6}}, 0).cores == std::vector<int>{4});
  REQUIRE(divide_cores({{0, 1}, {0, 1}, {0, 1}}, 2).cores == std::vector<int>{0, 1});
  REQUIRE(divide_cores({{0, 1}, {0, 1}, {0, 1}}, 2).ranks == 3);
}

}  // namespace
}  // namespace trainer
