#include "io/staging.h"

#include <cstring>

#include "core/base/error.h"

namespace trainer {

Staging::Staging(int blocks) {
  const size_t bytes = size_t(blocks) * kBlockBytes;
  bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockAlign, bytes)));
  check(bytes_ != nullptr, Exit::memory, "no memory for {} bytes of file buffers", bytes);
  std::memset(bytes_.get(), 0, bytes);
  engine_ = make_file_engine(blocks);
}

}  // namespace trainer
