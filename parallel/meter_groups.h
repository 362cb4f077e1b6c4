// The groups of a rank on the meter: every call is written down.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "core/device/meter.h"
#include "parallel/groups.h"

namespace trainer {

class MeterGroups final : public Groups {
 public:
  MeterGroups(MeterCounts& counts, const Mesh& mesh, const Stages& stages)
      : counts_(counts), mesh_(mesh), stages_(stages) {}
  Comm& on(Axis, Lane) override;
  Comm& pipe(int from, int to, bool gradient) override;

 private:
  Comm& open(const MeterComm::Label&, const GroupName&);
  MeterCounts& counts_;
  const Mesh mesh_;
  const Stages& stages_;
  std::map<std::string, std::unique_ptr<Comm>> comms_;
};

}  // namespace trainer
