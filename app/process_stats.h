// What the kernel says about this process.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trainer {

size_t peak_rss_bytes();    // VmHWM
size_t shared_rss_bytes();  // RssShmem, now: shared pages that this process has touched, its peers' included
int64_t page_faults();      // minor and major, so far

}  // namespace trainer
