#include "core/base/error.h"
#include "core/device/comm.h"

namespace trainer {

std::string_view name_of(Lane lane) {
  constexpr std::string_view kNames[kLanes] = {"compute",  "side",      "gather",    "reduce", "exchange", "send_act",
                                               "recv_act", "send_grad", "recv_grad", "load",   "copy",     "vote"};
  return kNames[size_t(lane)];
}

std::string_view name_of(Axis axis) {
  constexpr std::string_view kNames[kAxes] = {"pp",    "dp",        "cp",    "tp",      "kv",   "ep",
                                              "dp_cp", "expert_dp", "shard", "replica", "tied", "world"};
  return kNames[size_t(axis)];
}

namespace {
[[noreturn]] void refuse_graphs() { fail(Exit::device, "[device] only GPUs keep the work of their lanes as a graph"); }
}  // namespace
void Device::begin_graph(LaneMask) { refuse_graphs(); }
std::unique_ptr<Graph> Device::end_graph() { refuse_graphs(); }
void Device::launch(Graph&) { refuse_graphs(); }

}  // namespace trainer
