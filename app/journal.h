// What a run tells the world: metrics.jsonl, events.jsonl, TensorBoard, a readable line, a progress bar.
#pragma once
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/progress.h"
#include "app/run_directory.h"
#include "core/engine/step_report.h"
#include "core/model/model.h"
#include "io/json_lines.h"
#include "io/tensorboard.h"

namespace trainer {

// Where the seconds of a step went. They sum to the step's wall time: `other` is what is left.
struct TimeSplit {
  double compute = 0, exposed_comm = 0, data_wait = 0, checkpoint = 0, other = 0;
};

// Communication of a step by what it is for: weights, gradients, slices of a layer, borders of stages, experts, and the
// outcome that all ranks agree on.
template <class T>
struct ByPurpose {
  T gather{}, reduce{}, tp{}, pipe{}, exchange{}, outcome{};
};
using CommBytes = ByPurpose<int64_t>;   // moved
using CommSeconds = ByPurpose<double>;  // exposed: the compute lane waited for it, or did it itself

struct StepRecord {
  StepReport report;  // `step` counts finished steps: the first is 1
  double lr = 0;
  int64_t tokens = 0;             // so far
  double step_seconds = 0;        // from the end of the step before to the end of this one
  std::optional<TimeSplit> time;  // nothing where the device does not time its lanes
  CommBytes comm;
  CommSeconds exposed;
};

class Journal {
 public:
  struct Setting {
    FlopsPerToken flops;
    size_t arena_bytes = 0;  // of this rank
    int64_t first = 0;       // the first step of this attempt, minus one
    int64_t total = 0;
  };
  // One rank of a run keeps the journal (`keeper`); to the others all calls are nothing.
  Journal(const RunDirectory&, const RunSpec&, const Setting&, bool keeper);
  void step(const StepRecord&);
  void evaluation(int64_t step, double loss, double tokens);
  // `fields` follow event, step, rank, host, monotonic and time.
  void event(const std::string& name, int64_t step,
             const nlohmann::ordered_json& fields = nlohmann::ordered_json::object());
  // A line for people; the progress bar gives way to it.
  void say(const std::string& line);

 private:
  struct Files {
    explicit Files(const RunDirectory&);
    int attempt;  // how often this directory was started
    JsonLines metrics, events;
  };
  void show(const StepRecord&);
  const Setting setting_;
  const int64_t log_every_;
  std::optional<Files> files_;
  std::unique_ptr<TensorBoard> tensorboard_;
  std::optional<Progress> progress_;
  std::chrono::steady_clock::time_point last_line_{};
};

// C99 hex float of the fp32 value: equal texts are equal bits.
std::string hex_float(double value);
// "1.23M", "45.6k": three digits.
std::string short_number(double value);
std::string short_bytes(double bytes);  // "1.50 GiB"

}  // namespace trainer
