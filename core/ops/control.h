// What changes from step to step and what a step says about itself: two records in device memory.
#pragma once
#include <array>

#include "core/ops/kernel.h"

namespace trainer {

// The `begin` verb writes Control and zeroes Outcome.
struct Control {
  int64_t step = 0;            // the first step is 0
  uint64_t seed = 0;           // of dropout
  float lr = 0;                // of this step
  float bias1 = 0, bias2 = 0;  // 1 - beta^(step + 1)
  float max_norm = 0;          // infinity: no clipping
  float factor = 0;            // set by Agree: min(1, max_norm / norm) / tokens; gradients are multiplied by it
  int32_t skip = 0;            // set by Agree: the update changes nothing (a gradient is not finite)
                               // Both are set by Trust where a step updates ahead.
};

// Summed over the world once per step, so that every rank takes the same decision. All of it is f64 and a sum (a flag
// is a count of ranks), because one all_reduce has one type and one operation.
struct Outcome {
  double loss_sum = 0;   // over unmasked tokens, in nats
  double tokens = 0;     // unmasked
  double norm2 = 0;      // of the unnormalised gradient (a sum over tokens)
  double nonfinite = 0;  // buckets whose norm is not finite
  double stop_requested = 0;
  double store_busy = 0;
  double refused = 0;  // no sum: set by Judge
  std::array<double, 4> data_hash{};  // 16 bits each, lowest first: their sums are exact, so a 64-bit sum can be had
};
// The sum, modulo 2^64, of all hashes that were added.
uint64_t data_hash_of(const Outcome&);
void add_data_hash(Outcome&, uint64_t);

// What the host has to say: `read` adds it to an outcome. It runs on any thread of the host and may not call the
// device.
struct NoteCall {
  void (*read)(const void* source, int64_t step, Outcome&) = nullptr;  // null: nothing to say
  const void* source = nullptr;
  int64_t step = 0;
};
// Where it is read and said.
struct NotePage {
  NoteCall call;  // written before the step is issued
  Outcome value;
};

// What a step shares with the host: lies in the device's page, once for the step that the host waits for and once for
// the one that is begun behind it.
struct StepPage {
  Control control;                // written before the step is issued
  std::array<NotePage, 2> notes;  // of Note; the same ones have something to say in every step of a plan
  Outcome outcome;                // valid once the host waited for the step's `agree` or last vote
};
inline constexpr int kStepPages = 2;
struct HostPage {
  std::array<StepPage, kStepPages> steps;
};
static_assert(sizeof(HostPage) <= kPageBytes);

// control = *value, outcome = 0. `value` is in host memory that the device reaches, and read when the lane gets here.
struct Begin {
  static constexpr const char* kName = "begin";
  const Control* value = nullptr;
  Tensor control, outcome;
  Cost cost() const { return {}; }
};

// outcome += what the host says when the lane gets here: a signal in mid-step still counts for this step. `page` is in
// host memory that the device reaches; it and its call are left alone until the host has waited for this note.
struct Note {
  static constexpr const char* kName = "note";
  NotePage* page = nullptr;
  Tensor outcome;
  Cost cost() const { return {}; }
};

// *page = outcome, in host memory that the device reaches: for who waits for what follows on the lane.
struct Tell {
  static constexpr const char* kName = "tell";
  Outcome* page = nullptr;
  Tensor outcome;
  Cost cost() const { return {}; }
};

// *at = the time when the lane gets here, in nanoseconds of the device's clock. `at` is in host memory that the device
// reaches.
struct Stamp {
  static constexpr const char* kName = "stamp";
  int64_t* at = nullptr;
  Cost cost() const { return {}; }
};

// control.factor and control.skip from the outcome. verdict, which may be empty, becomes 0: what was refused before is
// over.
struct Agree {
  static constexpr const char* kName = "agree";
  Tensor control, outcome, verdict = {};
  Cost cost() const { return {}; }
};

// Post-validation (Qi, Wan, Huang, Lin 2023, "Zero Bubble Pipeline Parallelism", section 4): a step updates before the
// world has summed its outcome, as if no gradient had to be clipped.
//
// control.factor = 1 / ballot.tokens, to the bit what Agree makes of a norm that is not clipped; control.skip where
// there are no tokens, or where the verdict is not 0: an earlier update has to be taken back first. ballot f64, an
// Outcome of which only the tokens are asked; verdict f64 [1].
struct Trust {
  static constexpr const char* kName = "trust";
  Tensor control, ballot, verdict;
  Cost cost() const { return {}; }
};

// verdict = 1, and stays it, where the step of this outcome should not have updated so: a gradient or loss that is not
// finite, or a norm above max_norm. ballot.refused = verdict.
struct Judge {
  static constexpr const char* kName = "judge";
  Tensor verdict, ballot;
  float max_norm = 0;
  Cost cost() const { return {}; }
};

}  // namespace trainer
