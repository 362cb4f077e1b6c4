// How far one transfer is: what both file engines share about short results, retries and the end of a file.
#pragma once
#include "io/failpoints.h"
#include "io/file_engine.h"

namespace trainer {

class TransferProgress {
 public:
  struct Request {
    std::byte* data = nullptr;
    size_t bytes = 0;
    uint64_t offset = 0;
    int error = 0;  // injected: do not ask the kernel
  };

  TransferProgress() = default;
  explicit TransferProgress(const Transfer& transfer) : transfer_(transfer) {}

  const Transfer& transfer() const { return transfer_; }
  Request next();             // what to ask the kernel for
  bool take(int64_t result);  // bytes, or -errno, of that request; true: the transfer is over
  Completion completion(uint64_t tag) const { return {tag, reached_, error_}; }

 private:
  bool finish(int error);

  Transfer transfer_;
  size_t begin_ = 0;    // of the request in flight
  size_t reached_ = 0;  // everything below is transferred
  int retries_ = 0;
  int error_ = 0;
};

}  // namespace trainer
