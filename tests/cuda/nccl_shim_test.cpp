// The shim of NCCL itself: that it does what NCCL does, and that it notices what it must.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "tests/cuda/nccl_rank.h"
#include "tests/fakecuda/nccl_shim.h"

using namespace trainer;

namespace {

void ok(ncclResult_t r) {
  if (r != ncclSuccess) throw std::logic_error(std::string(ncclGetErrorString(r)) + ": " + ncclGetLastError(nullptr));
}

// A rank with a communicator of all ranks, a stream and some memory.
struct Rank {
  int rank, size;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int32_t* data = nullptr;

  Rank(Exchange& exchange, int blocking = 1) : rank(exchange.rank()), size(exchange.size()) {
    cuda_expect(cudaSetDevice(rank));
    cuda_expect(cudaStreamCreate(&stream));
    void* p = nullptr;
    cuda_expect(cudaMallocManaged(&p, 4096, cudaMemAttachGlobal));
    data = static_cast<int32_t*>(p);
    static ncclUniqueId id;
    if (rank == 0) ok(ncclGetUniqueId(&id));
    exchange.all_gather("id");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    config.commName = "all";
    const ncclResult_t r = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    expect(r == (blocking ? ncclSuccess : ncclInProgress), "a non-blocking communicator is not open at once");
    if (!blocking) finish();
  }
  ~Rank() {
    if (comm) std::uncaught_exceptions() ? ncclCommAbort(comm) : ncclCommDestroy(comm);
    cudaStreamDestroy(stream);
    cudaFree(data);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  void finish() {
    for (ncclResult_t state = ncclInProgress; state != ncclSuccess; usleep(100)) {
      ok(ncclCommGetAsyncError(comm, &state));
      expect(state == ncclSuccess || state == ncclInProgress, "an error while it was under way");
    }
  }
  void sync() { cuda_expect(cudaStreamSynchronize(stream)); }
};

// What a process of two ranks says when the shim ends it; empty: it ended by itself.
std::string last_words(const std::function<void(Rank&, Exchange&)>& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    run_ranks(2, [&](Exchange& exchange) {
      Rank rank(exchange);
      work(rank, exchange);
      rank.sync();
      exchange.all_gather("over");
    });
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return said;
}

}  // namespace

TEST_CASE("a split orders ranks by key, and leaves out who has no color") {
  run_ranks(5, [](Exchange& exchange) {
    Rank rank(exchange);
    ncclComm_t child = nullptr;
    const int color = rank.rank == 3 ? NCCL_SPLIT_NOCOLOR : rank.rank % 2;
    ok(ncclCommSplit(rank.comm, color, -rank.rank, &child, nullptr));
    expect((child == nullptr) == (rank.rank == 3), "a communicator without a color, or none with one");
    if (!child) return;
    int place = -1, size = -1;
    ok(ncclCommUserRank(child, &place));
    ok(ncclCommCount(child, &size));
    expect(size == (color == 0 ? 3 : 1), "wrong size");
    expect(place == (color == 0 ? (4 - rank.rank) / 2 : 0), "not in the order of keys");
    rank.data[0] = rank.rank;
    ok(ncclAllGather(rank.data, rank.data + 1, 1, ncclInt32, child, rank.stream));
    rank.sync();
    if (color == 0) expect(rank.data[1] == 4 && rank.data[2] == 2 && rank.data[3] == 0, "wrong members");
    ok(ncclCommDestroy(child));
  });
  REQUIRE(fakenccl::counts().alive == 0);
}

TEST_CASE("a non-blocking operation is not on its stream before somebody has asked until it was over") {
  run_ranks(2, [](Exchange& exchange) {
    Rank rank(exchange, 0);
    rank.data[0] = 1;
    expect(ncclAllReduce(rank.data, rank.data, 1, ncclInt32, ncclSum, rank.comm, rank.stream) == ncclInProgress,
           "the first operation makes connections");
    rank.sync();
    expect(rank.data[0] == 1, "it ran too early");
    expect(ncclAllReduce(rank.data, rank.data, 1, ncclInt32, ncclSum, rank.comm, rank.stream) == ncclInvalidArgument,
           "a second operation while the first is under way");
    exchange.all_gather("looked");
    rank.finish();
    rank.sync();
    expect(rank.data[0] == 2, "it did not run");
    expect(ncclCommFinalize(rank.comm) == ncclInProgress, "finalize waits for all ranks");
    rank.finish();
  });
}

TEST_CASE("a split of non-blocking ranks gives the child when its parent is asked") {
  run_ranks(2, [](Exchange& exchange) {
    Rank rank(exchange, 0);
    ncclComm_t child = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    expect(ncclCommSplit(rank.comm, 0, rank.rank, &child, &config) == ncclInProgress, "a split waits");
    exchange.all_gather("split");
    expect(child == nullptr, "known before anybody asked");
    rank.finish();
    expect(child != nullptr, "not known when it was over");
    std::swap(child, rank.comm);
    rank.finish();
    exchange.all_gather("open");
    ok(ncclCommDestroy(rank.comm));
    rank.comm = child;
  });
}

TEST_CASE("messages in a group need no order; in a group calls of several streams are one operation each") {
  run_ranks(2, [](Exchange& exchange) {
    Rank rank(exchange);
    cudaStream_t second = nullptr;
    cuda_expect(cudaStreamCreate(&second));
    const int peer = 1 - rank.rank;
    for (int i = 0; i < 4; ++i) rank.data[i] = 10 * rank.rank + i;
    ok(ncclGroupStart());
    ok(ncclSend(rank.data, 2, ncclInt32, peer, rank.comm, rank.stream));
    ok(ncclRecv(rank.data + 8, 2, ncclInt32, peer, rank.comm, rank.stream));
    ok(ncclAllReduce(rank.data + 3, rank.data + 12, 1, ncclInt32, ncclMax, rank.comm, second));
    ok(ncclGroupEnd());
    rank.sync();
    cuda_expect(cudaStreamSynchronize(second));
    expect(rank.data[8] == 10 * peer && rank.data[9] == 10 * peer + 1, "wrong message");
    expect(rank.data[12] == 13, "wrong maximum");
    cuda_expect(cudaStreamDestroy(second));
    expect(ncclSend(rank.data, 1, ncclInt32, 2, rank.comm, rank.stream) == ncclInvalidArgument, "a peer of no rank");
  });
}

TEST_CASE("captured operations run at every replay, and not before") {
  run_ranks(2, [](Exchange& exchange) {
    Rank rank(exchange);
    const int peer = 1 - rank.rank;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    rank.data[0] = 1 + rank.rank;
    cuda_expect(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    ok(ncclAllReduce(rank.data, rank.data, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    ok(ncclGroupStart());
    ok(ncclSend(rank.data + 4 + rank.rank, 1, ncclInt32, peer, rank.comm, rank.stream));
    ok(ncclRecv(rank.data + 4 + peer, 1, ncclInt32, peer, rank.comm, rank.stream));
    ok(ncclGroupEnd());
    cuda_expect(cudaStreamEndCapture(rank.stream, &graph));
    cuda_expect(cudaGraphInstantiate(&replay, graph, 0));
    cuda_expect(cudaGraphDestroy(graph));
    rank.sync();
    expect(rank.data[0] == 1 + rank.rank, "it ran while it was captured");
    for (int turn = 0; turn < 3; ++turn) {
      rank.data[4 + rank.rank] = 10 * turn + rank.rank;
      cuda_expect(cudaGraphLaunch(replay, rank.stream));
      rank.sync();
      expect(rank.data[0] == 3 << turn, "wrong sum of a replay");
      expect(rank.data[4 + peer] == 10 * turn + peer, "wrong message of a replay");
    }
    ok(ncclAllReduce(rank.data, rank.data, 1, ncclInt32, ncclMax, rank.comm, rank.stream));  // in step afterwards
    rank.sync();
    cuda_expect(cudaGraphExecDestroy(replay));
  });
}

TEST_CASE("an abort releases the rank's streams with NaN, and other ranks still wait until they abort") {
  run_ranks(2, [](Exchange& exchange) {
    Rank rank(exchange);
    rank.data[0] = 5;
    if (rank.rank == 0) ok(ncclAllReduce(rank.data, rank.data, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    exchange.all_gather("issued");
    if (rank.rank == 1) {
      ok(ncclCommAbort(rank.comm));
      rank.comm = nullptr;
      exchange.all_gather("aborted");
      return;
    }
    exchange.all_gather("aborted");
    for (int i = 0; i < 50; ++i) expect(cudaStreamQuery(rank.stream) == cudaErrorNotReady, "it does not wait");
    ok(ncclCommAbort(rank.comm));
    rank.comm = nullptr;
    rank.sync();
    expect(rank.data[0] == -1, "what an aborted operation leaves is of no use");
  });
}

TEST_CASE("ranks that do different things are named, with what each does") {
  const auto reduce = [](Rank& r, size_t n, ncclDataType_t type, ncclRedOp_t op) {
    ncclAllReduce(r.data, r.data, n, type, op, r.comm, r.stream);
  };
  using Catch::Contains;
  const std::string of_kind = last_words([&](Rank& r, Exchange&) {
    if (r.rank == 0) reduce(r, 4, ncclInt32, ncclSum);
    else ncclAllGather(r.data, r.data + 100, 4, ncclInt32, r.comm, r.stream);
  });
  CHECK_THAT(of_kind, Contains("operation 0 of 'all' differs") && Contains("calls ncclAllReduce of 4 int32") &&
                          Contains("calls ncclAllGather of 4 int32"));
  const std::string of_count = last_words([&](Rank& r, Exchange&) {
    reduce(r, 4, ncclInt32, ncclSum);
    reduce(r, r.rank == 0 ? 4 : 5, ncclInt32, ncclSum);
  });
  CHECK_THAT(of_count, Contains("operation 1 of 'all' differs") && Contains("of 5 int32"));
  const std::string of_type =
      last_words([&](Rank& r, Exchange&) { reduce(r, 4, r.rank == 0 ? ncclInt32 : ncclFloat32, ncclSum); });
  CHECK_THAT(of_type, Contains("of 4 float32"));
  const std::string of_op =
      last_words([&](Rank& r, Exchange&) { reduce(r, 4, ncclInt32, r.rank == 0 ? ncclSum : ncclMax); });
  CHECK_THAT(of_op, Contains("op 2"));
  const std::string of_message = last_words([&](Rank& r, Exchange&) {
    if (r.rank == 0) ncclSend(r.data, 4, ncclInt32, 1, r.comm, r.stream);
    else ncclRecv(r.data, 3, ncclInt32, 0, r.comm, r.stream);
  });
  CHECK_THAT(of_message, Contains("rank 0 sends 4 int32, rank 1 receives 3 int32"));
  CHECK(last_words([&](Rank& r, Exchange&) { reduce(r, 4, ncclInt32, ncclSum); }).empty());
}

TEST_CASE("communicators and buffers that are used wrongly end the process with a sentence") {
  using Catch::Contains;
  const auto said = [](const std::function<void(Rank&)>& work) {
    return last_words([&](Rank& r, Exchange&) { work(r); });
  };
  CHECK_THAT(said([](Rank& r) {
               ncclCommAbort(r.comm);
               ncclAllReduce(r.data, r.data, 1, ncclInt32, ncclSum, r.comm, r.stream);
             }),
             Contains("ncclAllReduce: communicator 'all' is used after it was aborted"));
  CHECK_THAT(said([](Rank& r) {
               ncclComm_t child = nullptr;
               ncclCommSplit(r.comm, 0, 0, &child, nullptr);
               ncclCommDestroy(r.comm);
             }),
             Contains("'all' has 1 children alive"));
  CHECK_THAT(said([](Rank& r) {
               void* handle = nullptr;
               ncclCommRegister(r.comm, r.data, 64, &handle);
               ncclCommDestroy(r.comm);
             }),
             Contains("'all' has registered buffers"));
  CHECK_THAT(said([](Rank& r) {
               void *handle = nullptr, *p = nullptr;
               cudaMalloc(&p, 64);
               ncclCommRegister(r.comm, p, 64, &handle);
               cudaFree(p);
               ncclCommDeregister(r.comm, handle);
             }),
             Contains("freed too early"));
  CHECK_THAT(said([](Rank& r) {
               ncclAllReduce(r.data, r.data, 1, ncclInt32, ncclSum, r.comm, r.stream);
               ncclCommDestroy(r.comm);
             }),
             Contains("'all' has 1 operations under way"));
  CHECK_THAT(said([](Rank& r) { ncclAllReduce(r.data, r.data + 1, 4, ncclInt32, ncclSum, r.comm, r.stream); }),
             Contains("the buffers overlap and are not in place"));
  CHECK_THAT(said([](Rank& r) {
               int32_t on_host[4] = {};
               ncclAllReduce(on_host, r.data, 4, ncclInt32, ncclSum, r.comm, r.stream);
             }),
             Contains("not inside a live device allocation"));
}
