// The functions of NCCL that are used here, loaded when a world has several GPUs: other runs need no NCCL.
// https://docs.nvidia.com/deeplearning/nccl/user-guide
#pragma once
#include <nccl.h>

#include <string>

namespace trainer {

#define TRAINER_NCCL_FUNCTIONS(X) \
  X(ncclGetVersion)               \
  X(ncclGetUniqueId)              \
  X(ncclGetErrorString)           \
  X(ncclGetLastError)             \
  X(ncclCommInitRankConfig)       \
  X(ncclCommSplit)                \
  X(ncclCommFinalize)             \
  X(ncclCommDestroy)              \
  X(ncclCommAbort)                \
  X(ncclCommGetAsyncError)        \
  X(ncclCommCount)                \
  X(ncclCommUserRank)             \
  X(ncclAllReduce)                \
  X(ncclReduceScatter)            \
  X(ncclAllGather)                \
  X(ncclSend)                     \
  X(ncclRecv)                     \
  X(ncclGroupStart)               \
  X(ncclGroupEnd)
// Null where the library has none.
#define TRAINER_NCCL_OPTIONAL_FUNCTIONS(X) \
  X(ncclCommRegister)                      \
  X(ncclCommDeregister)

struct Nccl {
#define TRAINER_NCCL_MEMBER(name) decltype(&::name) name = nullptr;
  TRAINER_NCCL_FUNCTIONS(TRAINER_NCCL_MEMBER)
  TRAINER_NCCL_OPTIONAL_FUNCTIONS(TRAINER_NCCL_MEMBER)
#undef TRAINER_NCCL_MEMBER
};
// Loads the library once in a process. Throws Error(rank) where the machine has none, or too old a one.
const Nccl& nccl();

// Communicators are aborted together (ncclCommAbort in a group), as several of one device must be.
inline constexpr int kOldestNccl = NCCL_VERSION(2, 22, 0);
// "2.28.9" of a library. Throws Error(rank) for one that is too old.
std::string nccl_version_of(const Nccl&);

}  // namespace trainer
