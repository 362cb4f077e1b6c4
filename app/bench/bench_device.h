// What a benchmark runs on: the one place that chooses, installs and claims it.
#pragma once
#include <string>

#include "core/spec/run_spec.h"

namespace trainer {

// --device auto | cpu | cuda and --dtype bf16 | fp32 as a spec's words. Throws Error(usage).
RunSpec bench_spec(const std::string& device, const std::string& dtype);

// Once per process: installs the kernels of spec.device, claims it, and says on stderr what it is.
void choose_device(const RunSpec&);

}  // namespace trainer
