#include "parallel/comm/nccl_backend.h"

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr const char* kMissing =
    "[nccl] this binary is built without NCCL: build it where CMake finds the CUDA toolkit with nccl.h, or run on CPUs";

}  // namespace

std::string nccl_version() { fail(Exit::rank, "{}", kMissing); }

std::unique_ptr<GpuGroups> open_nccl_groups(Exchange&, const Mesh&, const Stages&, Traffic&, const NcclOptions&) {
  fail(Exit::rank, "{}", kMissing);
}

}  // namespace trainer
