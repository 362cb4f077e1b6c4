// The two file engines by name; make_file_engine chooses.
#pragma once
#include <string>

#include "io/file_engine.h"

namespace trainer {

std::unique_ptr<FileEngine> make_thread_engine(int depth);

// nullptr where this build or this kernel has no io_uring; `why` says which.
std::unique_ptr<FileEngine> make_uring_engine(int depth, std::string& why);

}  // namespace trainer
