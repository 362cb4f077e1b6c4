#include "kernels/cuda/cublaslt_api.h"

#include <dlfcn.h>

#include "core/base/error.h"

namespace trainer::cuda {
namespace {

// The interface used here is the same in these versions; the newest comes first, as that knows most GPUs.
constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};

void* open_library() {
  std::string reasons;
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_NOW)) return library;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", dlerror());
  }
  fail(
      Exit::device,
      "[cuda] matrix products on a GPU need cuBLASLt, and none was found: {}. Install CUDA's cuBLAS (libcublas-13-0 or "
      "libcublas-12-8 on Debian and Ubuntu), or name its folder in LD_LIBRARY_PATH",
      reasons);
}

CublasLt load() {
  void* library = open_library();
  CublasLt api;
  const auto find = [&](auto& function, const char* name) {
    void* found = dlsym(library, name);
    check(found, Exit::device, "[cuda] libcublasLt has no {}: wanted cuBLAS 12 or newer", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define TRAINER_CUBLASLT_LOAD(name) find(api.name, #name);
  TRAINER_CUBLASLT_FUNCTIONS(TRAINER_CUBLASLT_LOAD)
#undef TRAINER_CUBLASLT_LOAD
  return api;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt loaded = load();
  return loaded;
}

std::string cublaslt_version() {
  try {
    const size_t v = cublaslt().cublasLtGetVersion();
    return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  } catch (const Error&) { return ""; }
}

}  // namespace trainer::cuda
