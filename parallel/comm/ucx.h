// The functions of UCX that are used here, loaded when a world has several hosts: a run within one host needs no UCX,
// and is spared its thread and its signal handlers. https://openucx.readthedocs.io
#pragma once
#include <ucp/api/ucp.h>

namespace trainer {

#define TRAINER_UCX_FUNCTIONS(X) \
  X(ucp_config_read)             \
  X(ucp_config_modify)           \
  X(ucp_config_release)          \
  X(ucp_init_version)            \
  X(ucp_cleanup)                 \
  X(ucp_worker_create)           \
  X(ucp_worker_destroy)          \
  X(ucp_worker_get_address)      \
  X(ucp_worker_release_address)  \
  X(ucp_worker_get_efd)          \
  X(ucp_worker_arm)              \
  X(ucp_worker_progress)         \
  X(ucp_worker_flush_nbx)        \
  X(ucp_ep_create)               \
  X(ucp_tag_send_nbx)            \
  X(ucp_tag_recv_nbx)            \
  X(ucp_request_check_status)    \
  X(ucp_request_free)

struct Ucx {
#define TRAINER_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  TRAINER_UCX_FUNCTIONS(TRAINER_UCX_MEMBER)
#undef TRAINER_UCX_MEMBER
  decltype(&::ucs_status_string) ucs_status_string = nullptr;
};
// Loads the library once in a process. Throws Error(rank) where the machine has none.
const Ucx& ucx();

}  // namespace trainer
