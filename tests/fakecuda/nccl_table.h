// The shim as the NCCL backend sees it, in place of the loaded library.
#pragma once
#include "parallel/comm/nccl/nccl_api.h"

namespace fakenccl {

trainer::Nccl& table();  // a test may take optional functions out, while no world is open

}  // namespace fakenccl
