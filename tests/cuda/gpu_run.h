// One rank of a run on an emulated GPU, as the loop of training holds it: step by step.
#pragma once
#include <optional>

#include "app/rig.h"
#include "app/step_control.h"
#include "app/wire.h"
#include "core/base/error.h"
#include "core/device/host_image.h"
#include "core/engine/engine.h"
#include "core/engine/initialise.h"
#include "core/plan/layout.h"
#include "tests/ranks/layouts.h"
#include "tests/ranks/sequence_feed.h"

namespace trainer::test {

// Has a hash, and fails at a step when told to.
class TestFeed final : public SequenceFeed {
 public:
  using SequenceFeed::SequenceFeed;
  NoteCall hash_note() const override {
    return {[](const void*, int64_t step, Outcome& o) { add_data_hash(o, uint64_t(1000 + step)); }, this};
  }
  int64_t fails_at = -1;

 private:
  void write(Split split, int64_t step, int microbatch, const Batch& batch) override {
    check(step != fails_at, Exit::data, "the data ends here");
    SequenceFeed::write(split, step, microbatch, batch);
  }
};

// Also installs the device that the spec asks for.
inline RunSpec spec_with(const Layout& layout, bool graph) {
  RunSpec spec = spec_of(layout);
  spec.device.kind = DeviceChoice::cuda;
  spec.device.cuda_graph = graph;
  spec.data.split = 0.9;  // so that there is a plan to evaluate
  install_device(spec);
  return spec;
}

// REQUIRES: the spec's device is installed.
class GpuRun {
 public:
  GpuRun(const RunSpec& spec, Exchange& exchange) : rig(open(spec, exchange)), feed(planned().spec, planned().mesh) {
    state.emplace(*rig.device, static_bytes(planned().program));
    initialise_state(planned().program, planned().model, 1, state->bytes());
    state->store();
    feed.stage_in(rig.staging(), staging_turns(rig.planned.program));
    engine.emplace(planned().program, planned().spec, planned().mesh, planned().model,
                   EngineDevices{*rig.device, rig.groups(), feed, nullptr, &stop});
  }
  StepReport train() {
    const RunSpec& spec = planned().spec;
    const int64_t step = trained++;
    return engine->step(train_key(spec, spec.train.global_batch.count, planned().mesh.dp),
                        step_control(spec, step, 100));
  }
  StepReport evaluate(int64_t pass) {
    Control control = step_control(planned().spec, trained, 100);
    control.step = pass;
    return engine->step(evaluate_key(planned().spec), control);
  }
  std::vector<std::byte> save() {
    rig.device->drain();
    state->fetch();
    const auto bytes = state->bytes();
    return {bytes.begin(), bytes.end()};
  }

  Rig rig;
  std::optional<HostImage> state;
  TestFeed feed;
  std::atomic<int> stop{0};
  int64_t trained = 0;
  std::optional<Engine> engine;

 private:
  static Rig open(const RunSpec& spec, Exchange& exchange) {
    claim_device(spec.device, exchange.rank(), exchange.size());
    return open_rig(plan_run(spec, exchange.size(), exchange.rank()), exchange);
  }
  const Planned& planned() const { return rig.planned; }
};

}  // namespace trainer::test
