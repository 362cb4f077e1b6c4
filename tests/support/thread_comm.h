// Ranks as threads: collectives by copying under a lock, in the order of ranks. Slow and obvious; what blocks are
// tested over.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/error.h"
#include "core/device/comm.h"
#include "core/tensor/bf16.h"

namespace trainer::test {

// Where the ranks of one group lay their tensors down.
class MeetingPoint {
 public:
  explicit MeetingPoint(int size) : posted_(size_t(size)) {}
  int size() const { return int(posted_.size()); }

  // Posts `mine`, waits for all, calls use(what all posted), and returns when all have done so.
  template <class F>
  void meet(int rank, const Tensor& mine, F&& use) {
    posted_[size_t(rank)] = mine;
    wait_for_all();
    use(posted_);
    wait_for_all();
  }

 private:
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    if (++arrived_ == posted_.size()) {
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
      return;
    }
    const bool met = all_here_.wait_for(lock, std::chrono::seconds(60), [&] { return round_ != round; });
    check(met, Exit::rank, "a rank of the test did not come: it failed, or it calls other collectives");
  }

  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<Tensor> posted_;
  size_t arrived_ = 0;
  uint64_t round_ = 0;
};

// Tensors are dense. Sums have an f32 accumulator (f64 for f64) and one rounding.
class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<MeetingPoint> point, int rank) : point_(std::move(point)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return point_->size(); }
  void all_gather(Stream& s, Tensor shard, Tensor full) override {
    submit(s, &ThreadComm::run_all_gather, shard, full);
  }
  void reduce_scatter(Stream& s, Tensor full, Tensor shard) override {
    submit(s, &ThreadComm::run_reduce_scatter, full, shard);
  }
  void all_reduce(Stream& s, Tensor t, Reduce r = Reduce::sum) override {
    check(r == Reduce::sum, Exit::usage, "a test's ranks only sum");
    submit(s, &ThreadComm::run_all_reduce, t, t);
  }
  void barrier(Stream& s) override { submit(s, &ThreadComm::run_barrier, {}, {}); }
  void all_to_all_v(Stream&, Tensor, Tensor, Tensor, Tensor, int64_t) override { refuse(); }
  void send(Stream&, Tensor, int) override { refuse(); }
  void recv(Stream&, Tensor, int) override { refuse(); }
  void begin_group(Stream&) override {}
  void end_group(Stream&) override {}
  void abort() noexcept override {}

 private:
  using Body = void (ThreadComm::*)(const Tensor& from, const Tensor& to);
  struct Call {
    ThreadComm* comm;
    Body body;
    Tensor from, to;
  };
  void submit(Stream& stream, Body body, const Tensor& from, const Tensor& to) {
    const Call call{this, body, from, to};
    stream.submit(
        [](Stream&, const void* args) {
          const Call& c = *static_cast<const Call*>(args);
          (c.comm->*c.body)(c.from, c.to);
        },
        &call, sizeof call);
  }
  [[noreturn]] static void refuse() { fail(Exit::usage, "a test's ranks have no such operation"); }

  void run_barrier(const Tensor&, const Tensor&) {
    point_->meet(rank_, {}, [](const auto&) {});
  }
  void run_all_gather(const Tensor& shard, const Tensor& full) {
    check(shard.bytes() * size_t(size()) == full.bytes(), Exit::rank, "all_gather: {} bytes times {} are not {}",
          shard.bytes(), size(), full.bytes());
    std::vector<std::byte> all;
    point_->meet(rank_, shard, [&](const std::vector<Tensor>& shards) {
      for (const Tensor& t : shards) {
        check(t.bytes() == shard.bytes(), Exit::rank, "all_gather: shards of {} and {} bytes", t.bytes(),
              shard.bytes());
        all.insert(all.end(), t.data, t.data + t.bytes());
      }
    });
    std::copy(all.begin(), all.end(), full.data);
  }
  void run_all_reduce(const Tensor& t, const Tensor&) { reduce(t, 0, t.elements(), t); }
  void run_reduce_scatter(const Tensor& full, const Tensor& shard) {
    const int64_t n = shard.elements();
    check(n * size() == full.elements(), Exit::rank, "reduce_scatter: {} elements times {} are not {}", n, size(),
          full.elements());
    reduce(full, n * rank_, n * (rank_ + 1), shard);
  }

  // to = the sum over ranks of elements [begin, end).
  void reduce(const Tensor& mine, int64_t begin, int64_t end, const Tensor& to) {
    std::vector<double> wide(size_t(end - begin));
    std::vector<float> sums(wide.size());
    point_->meet(rank_, mine, [&](const std::vector<Tensor>& all) {
      for (const Tensor& t : all) {
        check(t.elements() == mine.elements() && t.dtype == mine.dtype, Exit::rank, "reduce: {} and {} elements",
              t.elements(), mine.elements());
        for (int64_t i = begin; i < end; ++i) {
          const size_t k = size_t(i - begin);
          if (t.dtype == DType::f64) wide[k] += data_as<double>(t)[i];
          else sums[k] += t.dtype == DType::bf16 ? to_float(data_as<bf16>(t)[i]) : data_as<float>(t)[i];
        }
      }
    });
    for (size_t k = 0; k < sums.size(); ++k) {
      if (to.dtype == DType::f64) data_as<double>(to)[k] = wide[k];
      else if (to.dtype == DType::bf16) data_as<bf16>(to)[k] = to_bf16(sums[k]);
      else data_as<float>(to)[k] = sums[k];
    }
  }

  std::shared_ptr<MeetingPoint> point_;
  int rank_;
};

// One group that is every axis' group: a world on one axis.
class ThreadGroups final : public Groups {
 public:
  ThreadGroups(std::shared_ptr<MeetingPoint> point, int rank) : comm_(std::move(point), rank) {}
  Comm& on(Axis, Lane) override { return comm_; }
  Comm& pipe(int, int, bool) override { fail(Exit::usage, "a test's ranks have no pipe"); }

 private:
  ThreadComm comm_;
};

}  // namespace trainer::test
