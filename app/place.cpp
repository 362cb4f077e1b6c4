#include "app/place.h"

#include <cstdlib>
#include <string>

#include "core/base/error.h"

namespace trainer {
namespace {

struct Source {
  const char* launcher;
  const char* variable;
};
constexpr Source kSources[] = {{"Slurm", "SLURM_STEP_NUM_TASKS"},
                               {"Open MPI", "OMPI_COMM_WORLD_SIZE"},
                               {"PMI", "PMI_SIZE"},
                               {"the environment", "WORLD_SIZE"}};

int parse_world(const Source& source, const std::string& text) {
  size_t end = 0;
  int n = 0;
  try {
    n = std::stoi(text, &end);
  } catch (const std::exception&) { end = 0; }
  check(end == text.size() && n > 0, Exit::usage, "{} sets {}: wanted a positive number, found '{}'", source.launcher,
        source.variable, text);
  return n;
}
void refuse_many(int world, const std::string& who) {
  check(world == 1, Exit::rank, "{} asks for {} ranks: running many ranks is not built yet; start one", who, world);
}

}  // namespace

Place find_place(int ranks_option) {
  if (ranks_option > 0) refuse_many(ranks_option, "--ranks");
  for (const Source& source : kSources)
    if (const char* text = std::getenv(source.variable)) refuse_many(parse_world(source, text), source.launcher);
  return {};
}

}  // namespace trainer
