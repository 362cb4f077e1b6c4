#include "tests/fakecuda/nccl_table.h"

namespace fakenccl {

trainer::Nccl& table() {
  static trainer::Nccl t = [] {
    trainer::Nccl n;
#define FAKENCCL_ENTER(name) n.name = &::name;
    TRAINER_NCCL_FUNCTIONS(FAKENCCL_ENTER)
    TRAINER_NCCL_OPTIONAL_FUNCTIONS(FAKENCCL_ENTER)
#undef FAKENCCL_ENTER
    return n;
  }();
  return t;
}

}  // namespace fakenccl

namespace trainer {

const Nccl& nccl() { return fakenccl::table(); }

}  // namespace trainer
