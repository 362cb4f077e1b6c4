#include "parallel/comm/ucx.h"

#include <dlfcn.h>

#include <cstdlib>

#include "core/base/error.h"

namespace trainer {
namespace {

void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  check(found, Exit::rank, "[ucx] libucp.so.0 has no {}: wanted UCX 1.13 or newer", name);
  return found;
}

// What UCX does unasked when it is loaded: it patches mmap and madvise, for caches that TCP has not, and reports what
// breaks, which is told by whoever waits for it.
void calm() {
  setenv("UCX_MEM_EVENTS", "n", 0);
  setenv("UCX_LOG_LEVEL", "fatal", 0);
}

Ucx load() {
  calm();
  void* library = dlopen("libucp.so.0", RTLD_NOW);
  check(library, Exit::rank, "[ucx] ranks on several hosts need UCX: {}; install libucx0", dlerror());
  Ucx u;
#define TRAINER_UCX_LOAD(name) u.name = reinterpret_cast<decltype(u.name)>(symbol(library, #name));
  TRAINER_UCX_FUNCTIONS(TRAINER_UCX_LOAD)
#undef TRAINER_UCX_LOAD
  u.ucs_status_string = reinterpret_cast<decltype(u.ucs_status_string)>(symbol(library, "ucs_status_string"));
  // UCX catches crashes to print its own report: they are the process's affair.
  reinterpret_cast<void (*)()>(symbol(library, "ucs_debug_disable_signals"))();
  return u;
}

}  // namespace

const Ucx& ucx() {
  static const Ucx loaded = load();
  return loaded;
}

}  // namespace trainer
