#include "core/device/device.h"

namespace trainer {

std::string_view name_of(Lane lane) {
  constexpr std::string_view kNames[kLanes] = {"compute",  "side",      "gather",    "reduce", "exchange", "send_act",
                                               "recv_act", "send_grad", "recv_grad", "load",   "copy"};
  return kNames[size_t(lane)];
}

}  // namespace trainer
