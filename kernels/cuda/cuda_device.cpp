#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/cuda_memory.h"

namespace trainer::cuda {
namespace {

// Communication is started early and waited for late: it goes first where both could run.
bool urgent(Lane lane) { return lane != Lane::compute && lane != Lane::copy; }

cudaStream_t open_stream(Lane lane) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent(lane) ? greatest : least),
             "creating a stream");
  return stream;
}

cudaEvent_t open_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  return event;
}

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t native() const { return graph_; }

 private:
  const cudaGraphExec_t graph_;
};

}  // namespace

CudaStream::CudaStream(CudaDevice& device, Lane lane, std::span<std::byte> scratch, size_t events)
    : device_(device), lane_(lane), scratch_(scratch), stream_(open_stream(lane)) {
  ring_.resize(std::max<size_t>(events, 2));
  static_assert(kLanes + kAccounts <= LaneClock::kPlaces);
  if (lane == Lane::compute) clock_ = std::make_unique<LaneClock>();
  for (cudaEvent_t& e : ring_) e = open_event();
  for (cudaEvent_t& e : host_events_) e = open_event();
}

CudaStream::~CudaStream() {
  for (cudaEvent_t e : ring_) cudaEventDestroy(e);
  for (cudaEvent_t e : host_events_) cudaEventDestroy(e);
  cudaStreamDestroy(stream_);
}

// What a graph keeps is in the graph's order already.
void CudaStream::enter() {
  if (device_.keeps()) return;
  given_ = true;
  if (std::exchange(behind_, false))
    device_.order(static_cast<cudaStream_t>(device_.stream(Lane::compute).native()), stream_);
}

void CudaStream::submit(void (*run)(Stream&, const void*), const void* args, size_t) {
  enter();
  run(*this, args);
  check_cuda(cudaGetLastError(), "launching a kernel");
}

Event CudaStream::record() {
  enter();
  ++recorded_;
  check_cuda(cudaEventRecord(event(recorded_), stream_), "recording an event");
  return {lane_, recorded_};
}

Event CudaStream::record_for_host() {
  enter();
  if (clock_) clock_->tell(stream_);
  const unsigned how = device_.keeps() ? cudaEventRecordExternal : cudaEventRecordDefault;
  const uint64_t count = ++recorded_for_host_;
  check_cuda(cudaEventRecordWithFlags(host_event(count), stream_, how), "recording an event for the host");
  return {lane_, count, true};
}

void CudaStream::wait(Event e) {
  if (e.count == 0 || e.lane == lane_) return;  // a stream is in order
  enter();
  if (clock_) clock_->begin(stream_, int(e.lane));
  check_cuda(cudaStreamWaitEvent(stream_, device_.stream(e.lane).event(e.count), 0), "waiting for an event");
  if (clock_) clock_->end(stream_, int(e.lane));
}

void CudaStream::begin_account(int account) {
  enter();
  if (clock_) clock_->begin(stream_, kLanes + account);
}
void CudaStream::end_account(int account) {
  if (clock_) clock_->end(stream_, kLanes + account);
}

std::optional<LaneTimes> CudaStream::times() const {
  if (!clock_) return std::nullopt;
  LaneTimes t;
  for (int l = 0; l < kLanes; ++l) t.waited[size_t(l)] = clock_->seconds(l);
  for (int a = 0; a < kPlanAccount; ++a) t.accounts[size_t(a)] = clock_->seconds(kLanes + a);
  t.busy = clock_->seconds(kLanes + kPlanAccount);
  for (const double waited : t.waited) t.busy -= waited;
  return t;
}

void CudaStream::finish() { check_cuda(cudaStreamSynchronize(stream_), "waiting for a stream"); }

CudaDevice::CudaDevice(std::span<std::byte> arena, const ScratchMap& scratch, const CudaOptions& options)
    : arena_(arena), scratch_(scratch), options_(options) {
  check_cuda(cudaSetDevice(options.device), "choosing the device");
  page_ = more_page(kPageBytes);
  fence_ = open_event();
}

CudaDevice::~CudaDevice() {
  if (keeps()) {  // given up: a stream that captures cannot be waited for
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(compute(), &graph);
    cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  for (auto& lane : lanes_)
    if (lane) cudaStreamSynchronize(static_cast<cudaStream_t>(lane->native()));
  for (auto& lane : lanes_) lane.reset();
  cudaEventDestroy(fence_);
  for (void* page : pinned_) cudaFreeHost(page);
}

std::span<std::byte> CudaDevice::more_page(size_t bytes) {
  void*& page = pinned_.emplace_back();
  check_cuda(cudaHostAlloc(&page, bytes, cudaHostAllocDefault), "pinning a page");
  std::memset(page, 0, bytes);
  return {static_cast<std::byte*>(page), bytes};
}

CudaStream& CudaDevice::stream(Lane lane) {
  const auto l = size_t(lane);
  if (!lanes_[l])
    lanes_[l] = std::make_unique<CudaStream>(*this, lane, arena_.subspan(scratch_.offset[l], scratch_.bytes[l]),
                                             options_.events[l]);
  return *lanes_[l];
}

Stream& CudaDevice::lane(Lane lane) { return stream(lane); }

void CudaDevice::upload(std::byte* to, std::span<const std::byte> from) {
  check_cuda(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice), "copying to the device");
  finish_default_stream();
}

void CudaDevice::download(std::span<std::byte> to, const std::byte* from) {
  check_cuda(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost), "copying from the device");
}

void CudaDevice::wait(Event e) {
  if (e.count == 0 && !e.for_host) return;
  const CudaStream& lane = stream(e.lane);
  check_cuda(cudaEventSynchronize(e.for_host ? lane.host_event(e.count) : lane.event(e.count)), "waiting for the step");
}

void CudaDevice::order(cudaStream_t first, cudaStream_t then) const {
  check_cuda(cudaEventRecord(fence_, first), "recording an event");
  check_cuda(cudaStreamWaitEvent(then, fence_, 0), "waiting for an event");
}

// Other threads of the process (NCCL's among them) may call what a capture forbids. All lanes fork from the compute
// lane, and end in it.
void CudaDevice::begin_graph(LaneMask lanes) {
  const cudaStream_t origin = compute();
  check_cuda(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), "beginning a graph");
  kept_ = LaneMask(lanes | 1u << unsigned(Lane::compute));
  for (int l = 0; l < kLanes; ++l)
    if (kept_ >> l & 1 && Lane(l) != Lane::compute) order(origin, static_cast<cudaStream_t>(lane(Lane(l)).native()));
}

std::unique_ptr<Graph> CudaDevice::end_graph() {
  const cudaStream_t origin = compute();
  for (int l = 0; l < kLanes; ++l)
    if (kept_ >> l & 1 && Lane(l) != Lane::compute) order(static_cast<cudaStream_t>(lane(Lane(l)).native()), origin);
  cudaGraph_t kept = nullptr;
  kept_ = 0;
  check_cuda(cudaStreamEndCapture(origin, &kept), "ending a graph");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&graph, kept, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(kept);
  check_cuda(made, "making a graph of a step");
  return std::make_unique<CudaGraph>(graph);
}

void CudaDevice::launch(Graph& graph) {
  for (int l = 0; l < kLanes; ++l)
    if (CudaStream* lane = lanes_[size_t(l)].get(); lane && Lane(l) != Lane::compute) {
      if (lane->take_given()) order(static_cast<cudaStream_t>(lane->native()), compute());
      lane->fall_behind();
    }
  check_cuda(cudaGraphLaunch(static_cast<CudaGraph&>(graph).native(), compute()), "launching a step");
}

void CudaDevice::drain() {
  for (auto& lane : lanes_)
    if (lane) lane->finish();
}

}  // namespace trainer::cuda
