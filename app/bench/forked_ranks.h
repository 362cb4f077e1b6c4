// Ranks as forked processes of a benchmark, and how they speak: through one shared page.
#pragma once
#include <functional>

#include "parallel/comm/exchange.h"

namespace trainer {

// Runs `rank_main` in `n` processes, pinned to cores where there are enough of them, and returns when all have ended.
// When one fails, the others are killed and Error(rank) is thrown; what it said is on stderr.
void run_forked(int n, const std::function<void(Exchange&)>& rank_main);

}  // namespace trainer
