#include <algorithm>
#include <mutex>

#include "tests/fakecuda/capture.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/graph.h"
#include "tests/fakecuda/settings.h"

namespace fake {
namespace {

// Each branch is a stream of its own, with waits where an edge comes from another branch: so the scheduler takes the
// nodes in any order that the edges allow.
struct Executable {
  Graph graph;
  std::vector<std::unique_ptr<Stream>> branches;
  std::vector<std::shared_ptr<Record>> ends;  // of the last launch: an executable never overlaps with itself
};

Executable* instantiate(const Graph& graph) {
  auto* e = new Executable{graph, {}, {}};
  for (size_t i = 0; i < graph.branches; ++i) e->branches.push_back(std::make_unique<Stream>());
  const std::lock_guard hold(mu);
  for (const auto& branch : e->branches) streams().push_back(branch.get());
  return e;
}

bool is_awaited_elsewhere(const Graph& graph, size_t node) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    return n.branch != graph.nodes[node].branch && std::find(n.after.begin(), n.after.end(), node) != n.after.end();
  });
}

void launch(Executable& e, Stream& stream, std::vector<Op> ops) {
  std::vector<std::shared_ptr<Record>> before = std::move(e.ends);
  before.push_back(push_record(stream));
  for (const auto& branch : e.branches) {
    branch->device = stream.device;
    for (const auto& record : before) push_wait(*branch, record);
  }
  const std::vector<Node>& nodes = e.graph.nodes;
  std::vector<std::shared_ptr<Record>> done(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    Stream& branch = *e.branches[nodes[i].branch];
    for (const size_t node : nodes[i].after)
      if (nodes[node].branch != nodes[i].branch) push_wait(branch, done[node]);
    push(branch, std::move(ops[i]));
    if (is_awaited_elsewhere(e.graph, i)) done[i] = push_record(branch);
  }
  e.ends.clear();
  for (const auto& branch : e.branches) {
    e.ends.push_back(push_record(*branch));
    push_wait(stream, e.ends.back());
  }
  ++counters.graph_launches;
  ++counters.submissions;
}

}  // namespace
}  // namespace fake
using namespace fake;

extern "C" {
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t e = unavailable()) return e;
  if (!graph) return note(cudaErrorInvalidValue);
  if (injected("cudaGraphInstantiate")) return note(cudaErrorMemoryAllocation);
  *executable = reinterpret_cast<cudaGraphExec_t>(instantiate(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return unavailable(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  if (!executable) return note(cudaErrorInvalidValue);
  auto& e = *reinterpret_cast<Executable*>(executable);
  std::vector<Op> ops;
  for (const Node& node : e.graph.nodes) ops.push_back(node.op.renew ? node.op.renew() : node.op);
  const std::lock_guard hold(mu);
  Stream& stream = stream_of(handle);
  if (stream.capture) fail("a graph in a graph is not emulated");
  launch(e, stream, std::move(ops));
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes) fail("nodes of a graph can only be counted here");
  *count = reinterpret_cast<Graph*>(graph)->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (const cudaError_t e = unavailable()) return e;
  auto* e = reinterpret_cast<Executable*>(executable);
  for (const auto& branch : e->branches) finish(*branch, "cudaGraphExecDestroy");
  {
    const std::lock_guard hold(mu);
    for (const auto& branch : e->branches) std::erase(streams(), branch.get());
  }
  delete e;
  return cudaSuccess;
}
}
