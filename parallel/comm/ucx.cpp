#include "parallel/comm/ucx.h"

#include <dlfcn.h>

#include "core/base/error.h"

namespace trainer {
namespace {

void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  check(found, Exit::rank, "[ucx] libucp.so.0 has no {}: wanted UCX 1.13 or newer", name);
  return found;
}

Ucx load() {
  void* library = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
  check(library, Exit::rank, "[ucx] ranks on several hosts need UCX: {}; install libucx0", dlerror());
  Ucx u;
#define TRAINER_UCX_LOAD(name) u.name = reinterpret_cast<decltype(u.name)>(symbol(library, #name));
  TRAINER_UCX_FUNCTIONS(TRAINER_UCX_LOAD)
#undef TRAINER_UCX_LOAD
  u.ucs_status_string = reinterpret_cast<decltype(u.ucs_status_string)>(symbol(library, "ucs_status_string"));
  // What breaks is told by whoever waited for it.
  reinterpret_cast<ucs_status_t (*)(const char*, const char*)>(symbol(library, "ucs_global_opts_set_value"))(
      "LOG_LEVEL", "fatal");
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
