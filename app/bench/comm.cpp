#include "app/bench/comm.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/bench/forked_ranks.h"
#include "core/base/error.h"
#include "core/spec/quantity.h"
#include "kernels/cpu/cpu_device.h"
#include "parallel/comm/shm_comm.h"
#include "parallel/comm/shm_copy.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSeries = 5;
constexpr double kSeriesSeconds = 0.06;
constexpr int64_t kSmallest = 1024;

// One operation at one size. Bytes are of the full tensor S.
struct Case {
  std::string name;
  double bus = 0;    // on the bus, as a multiple of S
  double moved = 0;  // read and written by each rank, as a multiple of S
  std::function<void(int64_t bytes)> issue;
};

class Bench {
 public:
  Bench(Exchange& exchange, int64_t max)
      : exchange_(exchange),
        arena_(memory_.reserve(size_t(2 * max + 4096 * exchange.size()))),
        world_(exchange, memory_, ranks(exchange.size())),
        comm_(world_, GroupName{"world", exchange.rank(), ranks(exchange.size())}, place(world_),
              traffic_.entry(Axis::world, Lane::compute)),
        device_(arena_, cpu::ScratchMap{}, cpu::CpuOptions{.threads = 1, .pin = false}),
        lane_(device_.lane(Lane::compute)) {
    data_[0] = arena_.data();
    data_[1] = arena_.data() + max;
    send_rows_ = counts(0);
    recv_rows_ = counts(1);
  }

  // Writes the figures of rank 0, at most `capacity`; returns how many.
  int run(int64_t max, CommFigure* figures) {
    int count = 0;
    for (const Case& c : cases())
      for (int64_t bytes = kSmallest; bytes <= max; bytes *= 4) {
        CommFigure f{c.name, bytes, seconds_of([&] { c.issue(bytes); }), 0, 0, {}};
        if (c.moved > 0) {
          const double copy = std::min(seconds_of([&] { issue_copy<std::memcpy>(bytes); }),
                                       seconds_of([&] { issue_copy<copy_bytes>(bytes); }));
          f.bus = c.bus * double(bytes) / f.seconds;
          f.roof = c.bus * double(bytes) / (copy * c.moved / 2);
        }
        figures[count++] = f;
        if (c.moved == 0) break;  // a barrier has no size
      }
    return count;
  }

 private:
  static std::vector<int> ranks(int n) {
    std::vector<int> all;
    for (int r = 0; r < n; ++r) all.push_back(r);
    return all;
  }
  static ShmPlace place(const ShmWorld& world) {
    const int slot = shm::axis_slot(Axis::world, Lane::compute);
    return {"compute", slot, slot, world.cores_suffice() ? 2000 : 0};
  }
  Tensor tensor(int which, DType dtype, int64_t bytes) const {
    return make_tensor(data_[which], dtype, {bytes / int64_t(size_of(dtype))});
  }
  Tensor counts(int which) const {
    const int n = exchange_.size();
    std::byte* end = arena_.data() + arena_.size() - 4096 * size_t(n) + size_t(which) * 2048;
    return make_tensor(end, DType::i64, {n});
  }
  std::vector<Case> cases();
  void issue_all_to_all(int64_t bytes);
  void issue_shift(int64_t bytes);
  template <auto copy>
  void issue_copy(int64_t bytes);
  double seconds_of(const std::function<void()>& issue);
  double slowest(double seconds);

  Exchange& exchange_;
  SharedMemory memory_;
  std::span<std::byte> arena_;
  ShmWorld world_;
  Traffic traffic_;
  ShmComm comm_;
  cpu::CpuDevice device_;
  Stream& lane_;
  std::byte* data_[2];
  Tensor send_rows_, recv_rows_;
};

std::vector<Case> Bench::cases() {
  const double n = exchange_.size(), part = (n - 1) / n;
  const auto shard = [this](const Tensor& full) {
    const int64_t k = full.elements() / comm_.size();
    return flat_part(full, k * comm_.rank(), k * (comm_.rank() + 1));
  };
  const auto whole = [this](DType dtype, int64_t bytes) {  // as many elements as can be shared out
    const int64_t unit = int64_t(size_of(dtype)) * comm_.size();
    return tensor(0, dtype, bytes / unit * unit);
  };
  const auto reduces = [=, this](DType dtype) {
    return [=, this](int64_t bytes) { comm_.all_reduce(lane_, tensor(0, dtype, bytes)); };
  };
  const auto scatters = [=, this](DType dtype) {
    return [=, this](int64_t bytes) {
      const Tensor full = whole(dtype, bytes);
      Tensor to = shard(full);
      to.data = data_[1];
      comm_.reduce_scatter(lane_, full, to);
    };
  };
  return {
      {"barrier", 0, 0, [this](int64_t) { comm_.barrier(lane_); }},
      {"all_reduce f32", 2 * part, 2, reduces(DType::f32)},
      {"all_reduce bf16", 2 * part, 2, reduces(DType::bf16)},
      {"reduce_scatter f32", part, 1 + 1 / n, scatters(DType::f32)},
      {"reduce_scatter bf16", part, 1 + 1 / n, scatters(DType::bf16)},
      {"all_gather f32", part, 2 * part,
       [=, this](int64_t bytes) {
         comm_.all_gather(lane_, shard(whole(DType::f32, bytes)), whole(DType::f32, bytes));
       }},
      {"all_to_all f32", part, 2, [this](int64_t bytes) { issue_all_to_all(bytes); }},
      {"send and receive", n > 1 ? 1.0 : 0.0, n > 1 ? 2.0 : 0.0, [this](int64_t bytes) { issue_shift(bytes); }},
  };
}

void Bench::issue_all_to_all(int64_t bytes) {
  const int64_t n = comm_.size(), width = std::min<int64_t>(64, bytes / 4 / n), rows = bytes / 4 / width / n * n;
  for (int64_t r = 0; r < n; ++r) data_as<int64_t>(send_rows_)[r] = data_as<int64_t>(recv_rows_)[r] = rows / n;
  const Tensor from = reshaped(tensor(0, DType::f32, rows * width * 4), {rows, width});
  const Tensor to = reshaped(tensor(1, DType::f32, rows * width * 4), {rows, width});
  comm_.all_to_all_v(lane_, from, to, send_rows_, recv_rows_, rows);
}

void Bench::issue_shift(int64_t bytes) {  // to the next rank, from the previous
  if (comm_.size() == 1) return;
  comm_.begin_group(lane_);
  comm_.send(lane_, tensor(0, DType::f32, bytes), (comm_.rank() + 1) % comm_.size());
  comm_.recv(lane_, tensor(1, DType::f32, bytes), (comm_.rank() + comm_.size() - 1) % comm_.size());
  comm_.end_group(lane_);
}

template <auto copy>
void Bench::issue_copy(int64_t bytes) {
  struct Args {
    std::byte *to, *from;
    size_t bytes;
  } args{data_[1], data_[0], size_t(bytes)};
  lane_.submit(
      [](Stream&, const void* p) {
        const Args& a = *static_cast<const Args*>(p);
        copy(a.to, a.from, a.bytes);
      },
      &args, sizeof args);
}

double Bench::slowest(double seconds) {
  double most = 0;
  for (const std::string& said : exchange_.all_gather(fmt::format("{:a}", seconds)))
    most = std::max(most, std::strtod(said.c_str(), nullptr));
  return most;
}

// Of one operation: the best of several series. Ranks begin a series together.
double Bench::seconds_of(const std::function<void()>& issue) {
  int64_t repeats = 2;
  double best = 1e300;
  for (int series = 0; series <= kSeries; ++series) {
    comm_.barrier(lane_);
    device_.drain();
    const auto start = Clock::now();
    for (int64_t i = 0; i < repeats; ++i) issue();
    device_.drain();
    const double seconds = slowest(std::chrono::duration<double>(Clock::now() - start).count() / double(repeats));
    if (series > 0) best = std::min(best, seconds);
    repeats = std::clamp(int64_t(kSeriesSeconds / seconds), int64_t{2}, int64_t{20000});
  }
  return best;
}

std::filesystem::path beside_this_binary(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / ("comm_" + name);
}

// Lines "operation<tab>bytes<tab>seconds" of a program that scripts/bench_comm.sh has built.
void add_others(std::vector<CommFigure>& figures, const std::string& library, int ranks, int64_t max) {
  const auto program = beside_this_binary(library);
  check(std::filesystem::exists(program), Exit::usage, "--against {}: {} is not there; scripts/bench_comm.sh builds it",
        library, program.string());
  const bool cores = ranks <= sysconf(_SC_NPROCESSORS_ONLN);
  const std::string run = library == "openmpi" ? fmt::format("mpirun --allow-run-as-root {} -n {} ",
                                                             cores ? "--bind-to core" : "--oversubscribe", ranks)
                                               : std::string();
  FILE* pipe = popen(fmt::format("{}{} {} {}", run, program.string(), ranks, max).c_str(), "r");
  check(pipe != nullptr, Exit::usage, "--against {}: cannot start {}", library, program.string());
  for (CommFigure& f : figures) f.others.push_back(0);
  char line[256];
  while (std::fgets(line, sizeof line, pipe)) {
    char op[64];
    long long bytes = 0;
    double seconds = 0;
    if (std::sscanf(line, "%63[^\t]\t%lld\t%lf", op, &bytes, &seconds) != 3) continue;
    for (CommFigure& f : figures)
      if (f.op == op && (f.bytes == bytes || f.roof == 0)) f.others.back() = seconds;
  }
  check(pclose(pipe) == 0, Exit::usage, "--against {}: {} failed", library, program.string());
}

int64_t bytes_of(const std::string& text) {
  const auto q = parse_quantity(text);
  check(q && q->whole && *q->whole >= kSmallest, Exit::usage, "--max: wanted bytes from 1KiB up, found '{}'", text);
  return *q->whole;
}

std::string short_bytes(int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

std::vector<CommFigure> bench_comm(const CommBenchOptions& options) {
  const int64_t max = bytes_of(options.max);
  for (const std::string& library : options.against)
    check(library == "openmpi" || library == "gloo", Exit::usage, "--against: wanted openmpi or gloo, found '{}'",
          library);
  // The ranks are processes: their figures come back through a file.
  FILE* figures = std::tmpfile();
  check(figures != nullptr, Exit::disk, "[bench] no temporary file");
  run_forked(options.ranks, [&](Exchange& exchange) {
    CommFigure found[128];
    Bench bench(exchange, max);
    const int count = bench.run(max, found);
    for (int i = 0; i < count && exchange.rank() == 0; ++i)
      std::fprintf(figures, "%s\t%lld\t%a\t%a\t%a\n", found[i].op.c_str(), static_cast<long long>(found[i].bytes),
                   found[i].seconds, found[i].bus, found[i].roof);
    std::fflush(figures);
  });
  std::rewind(figures);
  std::vector<CommFigure> all;
  char line[256], op[64];
  long long bytes = 0;
  double seconds = 0, bus = 0, roof = 0;
  while (std::fgets(line, sizeof line, figures))
    if (std::sscanf(line, "%63[^\t]\t%lld\t%la\t%la\t%la", op, &bytes, &seconds, &bus, &roof) == 5)
      all.push_back({op, bytes, seconds, bus, roof, {}});
  std::fclose(figures);
  for (const std::string& library : options.against) add_others(all, library, options.ranks, max);
  return all;
}

void print_comm_figures(const std::vector<CommFigure>& figures, const CommBenchOptions& options, bool json) {
  if (json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const CommFigure& f : figures) {
      nlohmann::ordered_json row{{"op", f.op},   {"bytes", f.bytes}, {"ranks", options.ranks}, {"seconds", f.seconds},
                                 {"bus", f.bus}, {"roof", f.roof},   {"unit", "bytes/s"}};
      for (size_t i = 0; i < options.against.size(); ++i) row[options.against[i]] = f.others[i];
      rows.push_back(row);
    }
    fmt::print("{}\n", nlohmann::ordered_json{{"rows", rows}}.dump(1));
    return;
  }
  fmt::print("{} processes, full tensor, NCCL's bus bandwidth; roof: memory copies of the bytes that must move\n",
             options.ranks);
  fmt::print("{:<20} {:>8} {:>12} {:>9} {:>9} {:>8}", "operation", "bytes", "us", "bus GB/s", "roof", "of roof");
  for (const std::string& library : options.against) fmt::print(" {:>12} {:>7}", library + " us", "ratio");
  fmt::print("\n");
  for (const CommFigure& f : figures) {
    const bool sized = f.roof > 0;
    fmt::print("{:<20} {:>8} {:>12.1f} {:>9} {:>9} {:>8}", f.op, sized ? short_bytes(f.bytes) : "", f.seconds * 1e6,
               sized ? fmt::format("{:.2f}", f.bus * 1e-9) : "", sized ? fmt::format("{:.2f}", f.roof * 1e-9) : "",
               sized ? fmt::format("{:.0f} %", 100 * f.bus / f.roof) : "");
    for (const double other : f.others)
      fmt::print(" {:>12} {:>7}", other > 0 ? fmt::format("{:.1f}", other * 1e6) : "-",
                 other > 0 ? fmt::format("{:.1f}", other / f.seconds) : "-");
    fmt::print("\n");
  }
}

}  // namespace trainer
