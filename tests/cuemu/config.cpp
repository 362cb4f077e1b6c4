#include "tests/cuemu/config.h"

#include <cstdlib>
#include <string_view>

namespace cuemu {
namespace {

Config from_environment() {
  Config c;
  if (const char* seed = std::getenv("CUEMU_SEED")) c.schedule.seed = std::strtoull(seed, nullptr, 10);
  if (const char* order = std::getenv("CUEMU_ORDER")) {
    if (std::string_view(order) == "forward") c.schedule.order = Order::forward;
    if (std::string_view(order) == "reverse") c.schedule.order = Order::reverse;
  }
  if (const char* workers = std::getenv("CUEMU_WORKERS")) c.workers = std::atoi(workers);
  if (const char* kib = std::getenv("CUEMU_SMEM_KB")) c.shared_bytes = size_t(std::atoi(kib)) << 10;
  return c;
}

}  // namespace

Config& config() {
  static Config c = from_environment();
  return c;
}
void set_schedule(Schedule schedule) { config().schedule = schedule; }
void set_seed(uint64_t seed) { config().schedule.seed = seed; }

}  // namespace cuemu
