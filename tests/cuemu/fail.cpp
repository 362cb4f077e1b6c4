#include "tests/cuemu/fail.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "tests/cuemu/block.h"
#include "tests/cuemu/device_functions.h"

namespace cuemu {

void fail(const char* kind, const Location& where, const char* format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  fprintf(stderr, "CUEMU ERROR [%s] kernel %s block (%u,%u,%u) thread %u at %s:%u: %s (seed %llu)\n", kind,
          block ? block->kernel() : "?", blockIdx.x, blockIdx.y, blockIdx.z, current ? current->linear : 0,
          where.file_name(), unsigned(where.line()), message, static_cast<unsigned long long>(config().schedule.seed));
  fflush(stderr);
  _exit(kFailedCheck);  // other threads hold locks and stacks that no destructor could deal with
}

}  // namespace cuemu
