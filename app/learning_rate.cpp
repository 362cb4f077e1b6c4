#include "app/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

constexpr double kPi = 3.14159265358979323846;

// 1 at the start of a decay, 0 at its end.
double remaining(DecayShape shape, double p) {
  switch (shape) {
    case DecayShape::linear: return 1 - p;
    case DecayShape::cosine: return 0.5 * (1 + std::cos(kPi * p));
    case DecayShape::one_minus_sqrt: return 1 - std::sqrt(p);
  }
  return 0;
}

double between(double low, double high, double share) { return low + (high - low) * share; }

}  // namespace

double learning_rate(const OptimizerSpec& optimizer, const ScheduleSpec& schedule, int64_t step, int64_t total) {
  const double lr = optimizer.lr;
  if (step < schedule.warmup) return lr * double(step + 1) / double(schedule.warmup);
  const auto decayed = [&](DecayShape shape, int64_t first) {
    const double p = double(step - first) / double(std::max<int64_t>(1, total - 1 - first));
    return between(schedule.final_lr, lr, remaining(shape, std::clamp(p, 0.0, 1.0)));
  };
  switch (schedule.kind) {
    case ScheduleKind::constant: return lr;
    case ScheduleKind::linear: return decayed(DecayShape::linear, schedule.warmup);
    case ScheduleKind::cosine: return decayed(DecayShape::cosine, schedule.warmup);
    case ScheduleKind::inverse_sqrt:
      return std::max(schedule.final_lr,
                      lr * std::sqrt(double(std::max<int64_t>(1, schedule.warmup)) / double(step + 1)));
    case ScheduleKind::wsd: {
      const int64_t first = std::max(schedule.warmup, total - schedule.decay);
      return step < first ? lr : decayed(schedule.shape, first);
    }
  }
  return lr;
}

}  // namespace trainer
