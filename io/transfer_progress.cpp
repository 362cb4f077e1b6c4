#include "io/transfer_progress.h"

#include <algorithm>
#include <cerrno>

namespace trainer {
namespace {

constexpr size_t kMaxRequest = size_t(1) << 30;  // a result is an int
constexpr size_t kAlign = 4096;
constexpr int kMaxRetries = 1000;

// O_DIRECT must go on at an aligned place: a short result is then partly repeated.
bool aligned(const Transfer& t) { return t.offset % kAlign == 0 && reinterpret_cast<uintptr_t>(t.data) % kAlign == 0; }

}  // namespace

TransferProgress::Request TransferProgress::next() {
  begin_ = aligned(transfer_) ? reached_ / kAlign * kAlign : reached_;
  const Fault fault = failpoint(transfer_.write ? "file_write" : "file_read");
  size_t bytes = std::min(transfer_.bytes - begin_, kMaxRequest);
  if (fault.short_bytes) bytes = std::min(bytes, *fault.short_bytes);
  return {transfer_.data + begin_, bytes, transfer_.offset + begin_, fault.error};
}

bool TransferProgress::finish(int error) {
  error_ = error;
  return true;
}

bool TransferProgress::take(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return ++retries_ > kMaxRetries ? finish(int(-result)) : false;
  if (result < 0) return finish(int(-result));
  const size_t reached = begin_ + size_t(result);
  if (reached <= reached_) return finish(transfer_.write && transfer_.bytes > 0 ? EIO : 0);  // a read's end of file
  reached_ = reached;
  return reached_ == transfer_.bytes;
}

}  // namespace trainer
