#include "app/bench/bench_device.h"

#include <fmt/format.h>

#include "app/wire.h"
#include "core/base/error.h"

namespace trainer {

RunSpec bench_spec(const std::string& device, const std::string& dtype) {
  check(dtype == "bf16" || dtype == "fp32", Exit::usage, "--dtype: wanted bf16 or fp32, found '{}'", dtype);
  check(device == "auto" || device == "cpu" || device == "cuda", Exit::usage,
        "--device: wanted auto, cpu or cuda, found '{}'", device);
  RunSpec spec;
  spec.precision.compute = dtype == "bf16" ? Precision::bf16 : Precision::fp32;
  spec.device.kind = device == "auto"  ? DeviceChoice::automatic
                     : device == "cpu" ? DeviceChoice::cpu
                                       : DeviceChoice::cuda;
  spec.device.fallback = true;  // what is slow may be measured; what it is called says so
  return spec;
}

void choose_device(const RunSpec& spec) {
  const std::string kernels = install_device(spec), claimed = claim_device(spec.device, 0, 1);
  fmt::print(stderr, "device: {}{}\n", claimed.empty() ? "" : claimed + ", ", kernels);
}

}  // namespace trainer
