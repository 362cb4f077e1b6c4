#include "io/file_engine.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "core/base/error.h"
#include "io/engines.h"

namespace trainer {

std::unique_ptr<FileEngine> make_file_engine(int depth) {
  check(depth > 0, Exit::usage, "a file engine needs a depth of at least 1, found {}", depth);
  const char* asked = getenv("TRAINER_IO");
  if (asked && *asked) {
    const std::string_view name = asked;
    check(name == "threads" || name == "io_uring", Exit::usage, "TRAINER_IO: wanted threads or io_uring, found '{}'",
          name);
    if (name == "threads") return make_thread_engine(depth);
  }
  std::string why;
  if (auto engine = make_uring_engine(depth, why)) return engine;
  static std::once_flag said;
  std::call_once(said, [&] { fmt::print(stderr, "file transfers use a thread pool: {}\n", why); });
  return make_thread_engine(depth);
}

}  // namespace trainer
