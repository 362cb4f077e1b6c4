// Positioned file transfers that complete in any order: io_uring where the kernel has it, a thread pool where it has not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace trainer {

struct Transfer {
  int fd = -1;
  bool write = false;
  std::byte* data = nullptr;   // stays valid until its completion was taken
  size_t bytes = 0;
  uint64_t offset = 0;
};
struct Completion {
  uint64_t tag = 0;
  size_t bytes = 0;   // transferred: all of them, or fewer where a read met the end of the file
  int error = 0;      // errno, 0: none
};

// Short transfers are continued inside, transient errors (EINTR, EAGAIN) retried: a completion is final.
// Not thread-safe: one engine per user.
class FileEngine {
 public:
  virtual ~FileEngine() = default;
  virtual std::string_view name() const = 0;                     // "io_uring" | "threads"
  virtual int depth() const = 0;                                 // transfers in flight at most
  virtual void submit(const Transfer&, uint64_t tag) = 0;        // REQUIRES: fewer than depth() in flight
  virtual Completion wait() = 0;                                 // REQUIRES: at least one in flight
};

// io_uring if this build and this kernel have it (TRAINER_IO=threads forces the pool), else the thread pool.
std::unique_ptr<FileEngine> make_file_engine(int depth);

}  // namespace trainer
