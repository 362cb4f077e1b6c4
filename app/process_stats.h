// What the kernel says about this process.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trainer {

size_t peak_rss_bytes();  // VmHWM
int64_t page_faults();    // minor and major, so far
int available_cores();    // that this process may use

}  // namespace trainer
