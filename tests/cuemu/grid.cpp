#include "tests/cuemu/grid.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/cuemu/block.h"
#include "tests/cuemu/device_functions.h"
#include "tests/cuemu/quiet_lock.h"

namespace cuemu {
namespace {

Stats total;
QuietLock lock;  // of `total` and `spare_blocks`

// Blocks with their stacks are kept from launch to launch.
std::vector<std::unique_ptr<Block>>& spare_blocks() {
  static std::vector<std::unique_ptr<Block>> spare;
  return spare;
}
std::unique_ptr<Block> take_block() {
  const std::lock_guard hold(lock);
  auto& spare = spare_blocks();
  if (spare.empty()) return std::make_unique<Block>();
  std::unique_ptr<Block> b = std::move(spare.back());
  spare.pop_back();
  return b;
}
void give_back(std::unique_ptr<Block> b) {
  const std::lock_guard hold(lock);
  total += b->stats();
  b->stats() = {};
  spare_blocks().push_back(std::move(b));
}

void check_dimensions(const Launch& l) {
  const dim3 g = l.grid, b = l.block;
  constexpr unsigned kThreads = 1024, kBlockZ = 64, kGridYZ = 65535, kGridX = 0x7fffffff;
  const uint64_t threads = uint64_t(b.x) * b.y * b.z;
  if (!g.x || !g.y || !g.z || !threads || threads > kThreads || b.z > kBlockZ || g.x > kGridX || g.y > kGridYZ ||
      g.z > kGridYZ)
    fail("launch", {}, "%s: a grid of %u,%u,%u with blocks of %u,%u,%u", l.name, g.x, g.y, g.z, b.x, b.y, b.z);
  if (l.shared_bytes > config().shared_bytes)
    fail("launch", {}, "%s: %zu bytes of dynamic shared memory, a block has %zu", l.name, l.shared_bytes,
         config().shared_bytes);
}

std::vector<uint64_t> order_of_blocks(uint64_t blocks) {
  std::vector<uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), uint64_t{0});
  const Schedule schedule = config().schedule;
  if (schedule.order == Order::reverse) std::reverse(order.begin(), order.end());
  if (schedule.order != Order::random) return order;
  Random random;
  random.seed(schedule.seed, blocks);
  for (uint64_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

void run_blocks(const Launch& launch, const std::vector<uint64_t>& order, std::atomic<uint64_t>& next) {
  tsan_release(launch.start_token);
  std::unique_ptr<Block> own = take_block();
  block = own.get();
  gridDim = launch.grid;
  blockDim = launch.block;
  for (uint64_t k = next.fetch_add(1); k < order.size(); k = next.fetch_add(1)) {
    const uint64_t number = order[k], x = launch.grid.x, y = launch.grid.y;
    blockIdx = {unsigned(number % x), unsigned(number / x % y), unsigned(number / (x * y))};
    own->run(launch, number);
  }
  block = nullptr;
  give_back(std::move(own));
}

}  // namespace

void run_grid(const char* name, dim3 grid, dim3 block_size, size_t shared_bytes, const std::function<void()>& body) {
  const auto tokens = std::make_unique<char[]>(2);  // from the heap: an address on the stack would be met again
  const Launch launch{name, grid, block_size, shared_bytes, body, &tokens[0], &tokens[1]};
  check_dimensions(launch);
  const std::vector<uint64_t> order = order_of_blocks(uint64_t(grid.x) * grid.y * grid.z);
  std::atomic<uint64_t> next{0};
  const auto workers = std::clamp<uint64_t>(uint64_t(std::max(config().workers, 1)), 1, order.size());
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < workers; ++i) others.emplace_back([&] { run_blocks(launch, order, next); });
  run_blocks(launch, order, next);
  for (std::thread& t : others) t.join();
  tsan_acquire(launch.end_token);
  const std::lock_guard hold(lock);
  ++total.launches;
}

Stats& stats() { return total; }

}  // namespace cuemu
