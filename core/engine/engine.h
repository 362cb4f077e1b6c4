// The interpreter: wait, issue, record. One host thread issues a whole step ahead of its lanes and waits once.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/device/collective.h"
#include "core/engine/feed.h"
#include "core/engine/resolve.h"
#include "core/engine/step_report.h"
#include "core/engine/store.h"
#include "core/ops/control.h"

namespace trainer {

// What the engine talks to. `store` may be null where no plan has a snapshot.
struct EngineDevices {
  Device& device;
  Groups& groups;
  Feed& feed;
  Store* store = nullptr;
  const std::atomic<int>* stop = nullptr;  // not zero: this rank was asked to stop
};

class Engine {
 public:
  // Everything given must outlive the engine. The program is final: laid out and linked (the planner's meter passes
  // drafts).
  Engine(const Program&, const RunSpec&, const Mesh&, const Model&, const EngineDevices&);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs the plan with this key and waits for its `agree`; updates may still be running when it returns. With
  // device.cuda_graph a plan is issued the first time, kept as a graph the second, and launched as one from then on.
  // `control` is what `begin` writes: step, seed, learning rate, bias corrections, clip.
  StepReport step(const PlanKey&, const Control& control);

  // The two halves of it. Between them another step may be begun, where both are of kind train_ahead: it waits for
  // nothing of the world's. `finish` is for the older one.
  void begin(const PlanKey&, const Control& control);
  StepReport finish();

  // Issues it without waiting: what the planner runs on the meter.
  void issue_plan(const PlanKey&, const Control& control);

  // Before the device goes, whose events they record.
  void drop_graphs();

  // With log.trace: when each instruction of the plan with this key ran last. REQUIRES: it ran, and the lanes are
  // drained.
  std::vector<Span> spans(const PlanKey&);

  // Runs the plan again, one instruction at a time, and names the first whose output is not finite ("forward of
  // layers.3.attention, micro-batch 0"), or the parameter whose weight was not finite before the step. Nothing if all
  // is finite. The update is left out, so the state stays as it is.
  // Every rank of the world calls it, for the ranks meet in it as in a step; each answers for itself.
  std::optional<std::string> find_nonfinite(const PlanKey&, const Control& control);

 private:
  struct Stamps {
    int64_t begin = 0, end = 0;  // nanoseconds of the device's clock
  };
  struct Prepared {
    const Plan* plan;
    ResolvedPlan views;
    std::span<Stamps> stamps = {};  // by instruction; empty: not traced
    bool issued = false;
    std::unique_ptr<Graph> graph = nullptr;
    Event agreed = {};      // of the graph
    MovedBytes moved = {};  // by a launch of it
  };
  struct Call {  // one instruction of one step
    const Prepared& prepared;
    const Instr& instr;
    size_t index;
    const PlanKey& key;
    const Control& control;
    Stream& lane;
  };
  Prepared& prepared(const PlanKey&);
  void run(const PlanKey&, const Control&);
  bool becomes_graph(const Prepared&) const;
  void keep(Prepared&, const PlanKey&, const Control&);
  void launch_again(Prepared&, const PlanKey&, const Control&);
  StepPage& page() { return pages_.steps[turn_]; }  // of the step that is being issued
  void write_page(const PlanKey&, const Control&);
  static Split split_of(const PlanKey&);
  Batch batch_of(const Plan&, const Instr&) const;
  void issue(const Call&);
  Comm& pipe(const Call&);  // of a send or receive
  void run_block(const Call&);
  void gather(const Call&);
  void reduce(const Call&);
  void sum_partial(const Call&, const Tensor& gradient);
  void norm(const Call&);
  void add_notes(const Call&, const Tensor& outcome);
  void agree(const Call&);
  void cast(const Call&);
  void vote(const Call&);
  void keep(const Call&);
  void undo(const Call&);
  std::pair<Tensor, Tensor> with_previous(const Call&, Role);  // of what the bucket's update changes
  void tie(const Call&);
  void update(const Call&);
  void snapshot(const Call&);
  void load(const Call&);
  Tensor find(const Call&, SlotClass, int index = -1) const;
  Tensor final_gradient(const Call&) const;
  Slice owned_elements(int bucket);  // of the flat bucket: this rank's, without padding
  // They themselves; `flat` is the whole bucket or already this rank's slice.
  Tensor owned(const Tensor& flat, int bucket);
  Tensor updated(const Call&, const Tensor& flat);  // the part of the bucket that this rank updates; empty stays empty
  Tensor fixed(size_t offset, DType, int64_t n) const;
  Tensor control() const;
  Tensor outcome() const;
  Tensor ballot(Ballot) const;
  Tensor verdict() const;
  std::string describe(const Instr&) const;
  std::optional<std::string> nonfinite_weight() const;
  std::optional<std::string> nonfinite_output(const Prepared&, size_t instr) const;

  const Program& program_;
  const RunSpec& spec_;
  const Mesh& mesh_;
  const Model& model_;
  EngineDevices to_;
  std::byte* base_;
  HostPage& pages_;
  std::vector<BlockLayout> layouts_;
  std::vector<std::vector<SharedRun>> shared_;  // per bucket
  std::map<std::tuple<StepKind, int, int64_t>, Prepared> prepared_;
  std::vector<Event> done_;
  Event agreed_{};
  struct Begun {
    PlanKey key;
    int64_t step = 0;
    Event agreed;
    std::chrono::steady_clock::time_point at;
  };
  std::array<Begun, kStepPages> begun_{};  // by turn
  size_t turn_ = 0, waiting_ = 0;          // of the newest; how many are begun and not finished
};

}  // namespace trainer
