// Gloo's collectives over loopback TCP, for comparison: comm_gloo RANKS MAX_BYTES
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "harness.h"

struct Gloo {
  int rank, size;
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter;  // works in place on a buffer of its own
  std::vector<float> buffer;

  Gloo(int r, int n, const std::string& directory) : rank(r), size(n) {
    gloo::rendezvous::FileStore store(directory);
    context = std::make_shared<gloo::rendezvous::Context>(r, n);
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    context->connectFullMesh(store, device);
  }
  void barrier() {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  }
  template <class T>
  void reduce(T* x, size_t n, gloo::AllreduceOptions::Func add) {
    gloo::AllreduceOptions options(context);
    options.setOutput(x, n);
    options.setReduceFunction(add);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    gloo::allreduce(options);
  }
  double most(double x) {
    reduce(&x, 1, [](void* to, const void* a, const void* b, size_t) {
      *static_cast<double*>(to) = std::max(*static_cast<const double*>(a), *static_cast<const double*>(b));
    });
    return x;
  }
  void all_reduce(float* x, size_t n) {
    reduce(x, n, [](void* to, const void* a, const void* b, size_t k) {
      add_f32(static_cast<float*>(to), static_cast<const float*>(a), static_cast<const float*>(b), k);
    });
  }
  void all_reduce(uint16_t* x, size_t n) {
    reduce(x, n, [](void* to, const void* a, const void* b, size_t k) {
      add_bf16(static_cast<uint16_t*>(to), static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), k);
    });
  }
  void reduce_scatter(float*, float*, size_t each) {
    const size_t n = each * size_t(size);
    if (buffer.size() != n) {
      buffer.assign(n, 0);
      scatter = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
          context, std::vector<float*>{buffer.data()}, int(n), std::vector<int>(size_t(size), int(each)));
    }
    scatter->run();
  }
  void all_gather(float*, float* full, size_t each) {
    gloo::AllgatherOptions options(context);
    options.setOutput(full, each * size_t(size));
    gloo::allgather(options);
  }
  void all_to_all(float* from, float* to, size_t each) {
    gloo::AlltoallOptions options(context);
    options.setInput(from, each * size_t(size));
    options.setOutput(to, each * size_t(size));
    gloo::alltoall(options);
  }
  void shift(int to, float* a, int from, float* b, size_t bytes) {
    const auto out = context->createUnboundBuffer(a, bytes), in = context->createUnboundBuffer(b, bytes);
    in->recv(from, 1);
    out->send(to, 1);
    out->waitSend();
    in->waitRecv();
  }
};

int main(int, char** argv) {
  const int ranks = std::atoi(argv[1]);
  char directory[] = "/tmp/comm_gloo_XXXXXX";
  if (!mkdtemp(directory)) return 1;
  for (int r = 0; r < ranks; ++r) {
    if (fork() != 0) continue;
    if (ranks <= sysconf(_SC_NPROCESSORS_ONLN)) {
      cpu_set_t cores;
      CPU_ZERO(&cores);
      CPU_SET(r, &cores);
      sched_setaffinity(0, sizeof cores, &cores);
    }
    Gloo gloo(r, ranks, directory);
    bench(gloo, std::atoll(argv[2]));
    std::fflush(stdout);
    _exit(0);
  }
  int failed = 0;
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  const std::string remove = "rm -rf " + std::string(directory);
  return std::system(remove.c_str()) != 0 || failed;
}
