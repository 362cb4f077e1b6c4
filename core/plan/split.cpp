#include "core/plan/split.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace trainer {
namespace {

// The embedding's and the head's blocks count with the layer beside them.
std::vector<double> flops_of_layers(const Model& model, int layers) {
  std::vector<double> flops(size_t(layers), 0.0);
  for (size_t b = 0; b < model.flops.size(); ++b)
    flops[size_t(std::clamp(model.layer[b], 0, layers - 1))] += model.flops[b];
  return flops;
}

// From the last position to the first: as many layers as cost at most `most`, and no more than an even share of those
// that are left. What is left for the first position may cost more.
std::vector<int> cut(const std::vector<double>& flops, int positions, double most) {
  std::vector<int> layers(static_cast<size_t>(positions));
  int left = int(flops.size());
  for (int at = positions - 1; at > 0; --at) {
    const int share = (left + at) / (at + 1);
    int& n = layers[size_t(at)];
    for (double cost = flops[size_t(left - 1)]; n < share && (n == 0 || cost <= most);
         cost += flops[size_t(left - 1 - n)])
      if (++n == left) break;
    left -= n;
  }
  layers[0] = left;
  return layers;
}

double dearest(const std::vector<double>& flops, const std::vector<int>& layers) {
  double most = 0;
  auto at = flops.begin();
  for (int n : layers) {
    most = std::max(most, std::accumulate(at, at + n, 0.0));
    at += n;
  }
  return most;
}

std::vector<int> cheapest_cut(const std::vector<double>& flops, int positions) {
  double low = 0, high = std::accumulate(flops.begin(), flops.end(), 0.0);
  std::vector<int> best = cut(flops, positions, high);
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    const std::vector<int> layers = cut(flops, positions, middle);
    const bool fits = dearest(flops, layers) <= middle;
    if (fits) best = layers;
    (fits ? high : low) = middle;
  }
  return best;
}

}  // namespace

std::vector<int> split_layers(const RunSpec& spec, const Model& model, int positions) {
  const int layers = int(spec.model.num_layers);
  const PipelineSpec& pipe = spec.parallel.pipeline;
  check(layers >= positions, Exit::spec,
        "[pipeline] {} layers over {} positions (pp {} x virtual_stages {}): wanted at least one each", layers,
        positions, spec.parallel.pp, pipe.virtual_stages);
  if (pipe.split.empty()) return cheapest_cut(flops_of_layers(model, layers), positions);
  const int64_t given = std::accumulate(pipe.split.begin(), pipe.split.end(), int64_t{0});
  check(
      int(pipe.split.size()) == positions && given == layers, Exit::spec,
      "[pipeline] parallel.pipeline.split: {} numbers of {} layers, wanted one for each of {} positions, of {} in all",
      pipe.split.size(), given, positions, layers);
  return {pipe.split.begin(), pipe.split.end()};
}

}  // namespace trainer
