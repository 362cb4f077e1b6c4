#include "kernels/cpu/workers.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"

namespace trainer::cpu {
namespace {

std::atomic<int> workers{1};

Level best_level() {
  __builtin_cpu_init();
  check(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), Exit::device,
        "this CPU has no AVX2 with FMA, which the kernels need at least");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Level::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Level::avx512_bf16 : Level::avx512;
}

Level choose_level() {
  const Level best = best_level();
  const char* asked = std::getenv("TRAINER_CPU_LEVEL");
  if (!asked) return best;
  for (Level level : {Level::avx2, Level::avx512, Level::avx512_bf16})
    if (std::string_view(asked) == name_of(level)) {
      check(level <= best, Exit::device, "TRAINER_CPU_LEVEL asks for {}; this CPU has {} at most", asked, name_of(best));
      return level;
    }
  fail(Exit::device, "TRAINER_CPU_LEVEL: wanted avx2, avx512 or avx512_bf16, found '{}'", asked);
}

}  // namespace

int planned_workers() { return workers.load(); }
void set_planned_workers(int n) { workers.store(n); }

Level cpu_level() {
  static const Level level = choose_level();
  return level;
}
const char* name_of(Level level) {
  return level == Level::avx2 ? "avx2" : level == Level::avx512 ? "avx512" : "avx512_bf16";
}

}  // namespace trainer::cpu
