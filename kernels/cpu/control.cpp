#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/cpu/kernels.h"

namespace trainer::cpu {

void run(Stream&, const Begin& op) {
  *data_as<Control>(op.control) = *op.value;
  *data_as<Outcome>(op.outcome) = Outcome{};
}

void run(Stream&, const Note& op) {
  const NoteCall& call = op.page->call;
  call.read(call.source, call.step, *data_as<Outcome>(op.outcome));
}

void run(Stream&, const Tell& op) { *op.page = *data_as<const Outcome>(op.outcome); }

void run(Stream&, const Stamp& op) { *op.at = std::chrono::steady_clock::now().time_since_epoch().count(); }

// The norm that is clipped is that of the mean loss's gradient. A step without a single token changes nothing.
void run(Stream&, const Agree& op) {
  const Outcome& outcome = *data_as<const Outcome>(op.outcome);
  Control& control = *data_as<Control>(op.control);
  const double norm = std::sqrt(outcome.norm2) / outcome.tokens;
  const bool usable = outcome.tokens > 0;
  control.skip = !usable || outcome.nonfinite > 0 || !std::isfinite(outcome.loss_sum);
  control.factor =
      usable ? float((norm > double(control.max_norm) ? double(control.max_norm) / norm : 1.0) / outcome.tokens) : 0.0f;
  if (op.verdict) *data_as<double>(op.verdict) = 0;
}

void run(Stream&, const Trust& op) {
  const double tokens = data_as<const Outcome>(op.ballot)->tokens;
  Control& control = *data_as<Control>(op.control);
  control.skip = !(tokens > 0) || *data_as<const double>(op.verdict) != 0;
  control.factor = tokens > 0 ? float(1.0 / tokens) : 0.0f;
}

void run(Stream&, const Judge& op) {
  Outcome& outcome = *data_as<Outcome>(op.ballot);
  double& verdict = *data_as<double>(op.verdict);
  const double norm = std::sqrt(outcome.norm2) / outcome.tokens;
  if (outcome.nonfinite > 0 || !std::isfinite(outcome.loss_sum) || norm > double(op.max_norm)) verdict = 1;
  outcome.refused = verdict;
}

}  // namespace trainer::cpu
