// A build without liburing.
#include "io/engines.h"

namespace trainer {

std::unique_ptr<FileEngine> make_uring_engine(int, std::string& why) {
  why = "this build has no liburing";
  return nullptr;
}

}  // namespace trainer
