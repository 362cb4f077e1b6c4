#include "core/base/error.h"
#include "parallel/comm/nccl/nccl_api.h"
#include "parallel/comm/nccl_backend.h"

namespace trainer {
namespace {

std::string text(int code) { return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100); }

}  // namespace

std::string nccl_version_of(const Nccl& api) {
  int code = 0;
  check(api.ncclGetVersion(&code) == ncclSuccess, Exit::rank, "[nccl] libnccl.so.2 does not say its version");
  check(code >= kOldestNccl, Exit::rank, "[nccl] wanted NCCL {} or newer, found {}", text(kOldestNccl), text(code));
  return text(code);
}

std::string nccl_version() { return nccl_version_of(nccl()); }

}  // namespace trainer
