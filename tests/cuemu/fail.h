// What the emulated device does when a kernel breaks a rule of CUDA.
#pragma once
#include <source_location>

namespace cuemu {

using Location = std::source_location;

inline constexpr int kFailedCheck = 66;  // the exit code

// Names the kernel, block, thread, place and seed on stderr, and ends the process.
[[noreturn]] void fail(const char* kind, const Location&, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

}  // namespace cuemu
