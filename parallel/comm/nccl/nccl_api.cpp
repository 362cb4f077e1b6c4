#include "parallel/comm/nccl/nccl_api.h"

#include <dlfcn.h>

#include "core/base/error.h"

namespace trainer {
namespace {

Nccl load() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  check(library, Exit::rank, "[nccl] ranks on several GPUs need NCCL: {}; install libnccl2, or set LD_LIBRARY_PATH",
        dlerror());
  Nccl n;
#define TRAINER_NCCL_LOAD(name) n.name = reinterpret_cast<decltype(n.name)>(dlsym(library, #name));
  TRAINER_NCCL_FUNCTIONS(TRAINER_NCCL_LOAD)
  TRAINER_NCCL_OPTIONAL_FUNCTIONS(TRAINER_NCCL_LOAD)
#undef TRAINER_NCCL_LOAD
#define TRAINER_NCCL_CHECK(name) \
  check(n.name, Exit::rank, "[nccl] libnccl.so.2 has no " #name ": wanted NCCL 2.22 or newer");
  TRAINER_NCCL_FUNCTIONS(TRAINER_NCCL_CHECK)
#undef TRAINER_NCCL_CHECK
  nccl_version_of(n);
  return n;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl loaded = load();
  return loaded;
}

}  // namespace trainer
