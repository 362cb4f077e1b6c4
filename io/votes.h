// How ranks agree on a checkpoint: each does its part and says how it went; all go on, or all throw the same error.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// How this rank hears from the others; a world of one by itself.
struct Votes {
  int rank = 0, size = 1;
  // What every rank said, by rank. All call it in the same order. Throws Error(rank) where one is gone.
  std::function<std::vector<std::string>(std::string_view mine)> all_gather = [](std::string_view mine) {
    return std::vector<std::string>{std::string(mine)};
  };
};

// Runs `work` on every rank and returns what it returned on each. Where it threw an Error on any, all ranks throw that
// of the first of them, with its exit code; the text names the rank.
std::vector<std::string> agree(const Votes&, const std::function<std::string()>& work);
// Runs `work` on rank 0 alone and returns what it returned, to all.
std::string agree_on_first(const Votes&, const std::function<std::string()>& work);

}  // namespace trainer
