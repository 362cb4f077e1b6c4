#include "kernels/cuda/cuda_device.h"

#include <algorithm>

#include "kernels/cuda/cuda_error.h"

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

}  // namespace

CudaStream::CudaStream(CudaDevice& device, Lane lane, std::span<std::byte> scratch, size_t events)
    : device_(device), lane_(lane), scratch_(scratch), stream_(open_stream(lane)) {
  ring_.resize(std::max<size_t>(events, 2));
  for (cudaEvent_t& e : ring_) check_cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "creating an event");
}

CudaStream::~CudaStream() {
  for (cudaEvent_t e : ring_) cudaEventDestroy(e);
  cudaStreamDestroy(stream_);
}

void CudaStream::submit(void (*run)(Stream&, const void*), const void* args, size_t) {
  run(*this, args);
  check_cuda(cudaGetLastError(), "launching a kernel");
}

Event CudaStream::record() {
  ++recorded_;
  check_cuda(cudaEventRecord(event(recorded_), stream_), "recording an event");
  return {lane_, recorded_};
}

void CudaStream::wait(Event e) {
  if (e.count == 0 || e.lane == lane_) return;  // a stream is in order
  check_cuda(cudaStreamWaitEvent(stream_, device_.stream(e.lane).event(e.count), 0), "waiting for an event");
}

void CudaStream::finish() { check_cuda(cudaStreamSynchronize(stream_), "waiting for a stream"); }

CudaDevice::CudaDevice(std::span<std::byte> arena, const ScratchMap& scratch, const CudaOptions& options)
    : arena_(arena), scratch_(scratch), options_(options) {
  check_cuda(cudaSetDevice(options.device), "choosing the device");
  void* page = nullptr;
  check_cuda(cudaHostAlloc(&page, kPageBytes, cudaHostAllocDefault), "pinning a page");
  page_ = static_cast<std::byte*>(page);
}

CudaDevice::~CudaDevice() {
  for (auto& lane : lanes_)
    if (lane) cudaStreamSynchronize(static_cast<cudaStream_t>(lane->native()));
  for (auto& lane : lanes_) lane.reset();
  cudaFreeHost(page_);
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
}

void CudaDevice::download(std::span<std::byte> to, const std::byte* from) {
  check_cuda(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost), "copying from the device");
}

void CudaDevice::wait(Event e) {
  if (e.count == 0) return;
  check_cuda(cudaEventSynchronize(stream(e.lane).event(e.count)), "waiting for the step");
}

void CudaDevice::drain() {
  for (auto& lane : lanes_)
    if (lane) lane->finish();
}

}  // namespace trainer::cuda
