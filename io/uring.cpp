// File transfers by io_uring (liburing): one thread keeps `depth` of them in flight.
#include <liburing.h>

#include <cassert>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "io/engines.h"
#include "io/transfer_progress.h"

namespace trainer {
namespace {

class UringEngine final : public FileEngine {
 public:
  UringEngine(const io_uring& ring, int depth) : ring_(ring), depth_(depth), jobs_(size_t(depth)) {
    for (int i = depth; i-- > 0;) unused_.push_back(size_t(i));
  }
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;
  // The kernel must not write into buffers that their owner frees after us.
  ~UringEngine() override {
    try {
      while (in_flight() > 0) wait();
    } catch (const Error&) {  // the ring itself is broken: its exit cancels what is left
    }
    io_uring_queue_exit(&ring_);
  }

  std::string_view name() const override { return "io_uring"; }
  int depth() const override { return depth_; }

  void submit(const Transfer& transfer, uint64_t tag) override {
    assert(!unused_.empty());
    const size_t slot = unused_.back();
    unused_.pop_back();
    jobs_[slot] = {TransferProgress(transfer), tag};
    issue(slot);
  }

  Completion wait() override {
    assert(in_flight() > 0);
    for (;;) {
      io_uring_cqe* cqe = nullptr;
      const int error = io_uring_wait_cqe(&ring_, &cqe);
      if (error == -EINTR) continue;
      check(error == 0, Exit::disk, "io_uring_wait_cqe: {}; TRAINER_IO=threads avoids io_uring", strerror(-error));
      const uint64_t data = cqe->user_data;
      const int64_t result = (data & kInjected) ? -int64_t(data >> 32 & 0xffff) : cqe->res;
      const size_t slot = data & 0xffffffff;
      io_uring_cqe_seen(&ring_, cqe);
      if (!jobs_[slot].progress.take(result)) {
        issue(slot);
        continue;
      }
      unused_.push_back(slot);
      return jobs_[slot].progress.completion(jobs_[slot].tag);
    }
  }

 private:
  // user_data: the slot; an injected error's number stands above it, under this bit, and the request is a no-op.
  static constexpr uint64_t kInjected = uint64_t(1) << 63;
  struct Job {
    TransferProgress progress;
    uint64_t tag = 0;
  };

  int in_flight() const { return depth_ - int(unused_.size()); }

  void issue(size_t slot) {
    const TransferProgress::Request r = jobs_[slot].progress.next();
    const Transfer& t = jobs_[slot].progress.transfer();
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    assert(sqe);  // the queue has an entry per job and is submitted at once
    if (r.error != 0) io_uring_prep_nop(sqe);
    else if (t.write) io_uring_prep_write(sqe, t.fd, r.data, unsigned(r.bytes), r.offset);
    else io_uring_prep_read(sqe, t.fd, r.data, unsigned(r.bytes), r.offset);
    sqe->user_data = r.error == 0 ? slot : kInjected | uint64_t(r.error) << 32 | slot;
    int submitted = 0;
    do submitted = io_uring_submit(&ring_);
    while (submitted == -EINTR || submitted == -EAGAIN);
    check(submitted == 1, Exit::disk, "io_uring_submit: {}; TRAINER_IO=threads avoids io_uring", strerror(-submitted));
  }

  io_uring ring_;
  const int depth_;
  std::vector<Job> jobs_;       // by slot
  std::vector<size_t> unused_;  // slots
};

}  // namespace

std::unique_ptr<FileEngine> make_uring_engine(int depth, std::string& why) {
  io_uring ring{};
  const int error = io_uring_queue_init(unsigned(depth), &ring, 0);
  if (error == 0) return std::make_unique<UringEngine>(ring, depth);
  why = std::string("the kernel refuses io_uring: ") + strerror(-error);
  return nullptr;
}

}  // namespace trainer
