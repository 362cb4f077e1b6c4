#include "core/device/comm.h"

namespace trainer {

std::string_view name_of(Lane lane) {
  constexpr std::string_view kNames[kLanes] = {"compute",  "side",      "gather",    "reduce", "exchange", "send_act",
                                               "recv_act", "send_grad", "recv_grad", "load",   "copy"};
  return kNames[size_t(lane)];
}

std::string_view name_of(Axis axis) {
  constexpr std::string_view kNames[kAxes] = {"pp",    "dp",        "cp",    "tp",      "kv",   "ep",
                                              "dp_cp", "expert_dp", "shard", "replica", "tied", "world"};
  return kNames[size_t(axis)];
}

}  // namespace trainer
