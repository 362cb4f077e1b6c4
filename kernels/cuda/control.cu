// The two records that steer a step. Nothing here streams: one thread does each.
#include <cfloat>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/kernels.h"
#include "ptx.h"

namespace trainer::cuda {
namespace {

// Records are sums of doubles, so that one type and one operation add them up.
constexpr int kOutcomeValues = sizeof(Outcome) / sizeof(double);

__global__ void add_outcome(double* outcome, const double* note) {
  if (threadIdx.x < kOutcomeValues) outcome[threadIdx.x] += note[threadIdx.x];
}

__global__ void stamp(int64_t* at) { *at = int64_t(ptx::global_timer()); }

// The norm that is clipped is that of the mean loss's gradient. A step without a single token changes nothing.
__global__ void agree(Control* control, const Outcome* outcome, double* verdict) {
  const double norm = sqrt(outcome->norm2) / outcome->tokens;
  const bool usable = outcome->tokens > 0;
  control->skip = !usable || outcome->nonfinite > 0 || !(fabs(outcome->loss_sum) <= DBL_MAX);
  const double clip = norm > double(control->max_norm) ? double(control->max_norm) / norm : 1.0;
  control->factor = usable ? float(clip / outcome->tokens) : 0.0f;
  if (verdict) *verdict = 0;
}

__global__ void trust(Control* control, const Outcome* ballot, const double* verdict) {
  const double tokens = ballot->tokens;
  control->skip = !(tokens > 0) || *verdict != 0;
  control->factor = tokens > 0 ? float(1.0 / tokens) : 0.0f;
}

__global__ void judge(double* verdict, Outcome* outcome, double max_norm) {
  const double norm = sqrt(outcome->norm2) / outcome->tokens;
  if (outcome->nonfinite > 0 || !(fabs(outcome->loss_sum) <= DBL_MAX) || norm > max_norm) *verdict = 1;
  outcome->refused = *verdict;
}

void CUDART_CB read_note(void* args) {
  NotePage& page = *static_cast<NotePage*>(args);
  page.value = Outcome{};
  page.call.read(page.call.source, page.call.step, page.value);
}

}  // namespace

void run(Stream& stream, const Begin& op) {
  cudaMemcpyAsync(op.control.data, op.value, sizeof(Control), cudaMemcpyHostToDevice, stream_of(stream));
  cudaMemsetAsync(op.outcome.data, 0, sizeof(Outcome), stream_of(stream));
}

void run(Stream& stream, const Note& op) {
  cudaLaunchHostFunc(stream_of(stream), read_note, op.page);
  CU_LAUNCH(add_outcome, dim3(1), dim3(32), 0, stream_of(stream), data_as<double>(op.outcome),
            reinterpret_cast<const double*>(&op.page->value));
}

void run(Stream& stream, const Tell& op) {
  cudaMemcpyAsync(op.page, op.outcome.data, sizeof(Outcome), cudaMemcpyDeviceToHost, stream_of(stream));
}

void run(Stream& stream, const Stamp& op) { CU_LAUNCH(stamp, dim3(1), dim3(1), 0, stream_of(stream), op.at); }

void run(Stream& stream, const Agree& op) {
  CU_LAUNCH(agree, dim3(1), dim3(1), 0, stream_of(stream), data_as<Control>(op.control), data_as<Outcome>(op.outcome),
            op.verdict ? data_as<double>(op.verdict) : nullptr);
}

void run(Stream& stream, const Trust& op) {
  CU_LAUNCH(trust, dim3(1), dim3(1), 0, stream_of(stream), data_as<Control>(op.control), data_as<Outcome>(op.ballot),
            data_as<double>(op.verdict));
}

void run(Stream& stream, const Judge& op) {
  CU_LAUNCH(judge, dim3(1), dim3(1), 0, stream_of(stream), data_as<double>(op.verdict), data_as<Outcome>(op.ballot),
            double(op.max_norm));
}

void run(Stream& stream, const Upload& op) {
  cudaMemcpyAsync(op.to.data, op.from, op.to.bytes(), cudaMemcpyHostToDevice, stream_of(stream));
}

}  // namespace trainer::cuda
