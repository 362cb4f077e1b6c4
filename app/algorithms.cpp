#include "app/algorithms.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "io/file.h"
#include "kernels/cuda/algorithms.h"

namespace trainer {
namespace {

// Empty where there is none yet.
std::string read_whole(const std::string& path) {
  if (!std::filesystem::exists(path)) return "";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) fail_errno(Exit::disk, path, "device.heuristics: cannot be read", errno);
  return text.str();
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string fresh = fmt::format("{}.{}", path, getpid());
  {
    const File file = create_file(fresh);
    write_text(file, text);
    sync(file);
  }
  rename_path(fresh, path);
}

// What a rank found, the first of those that found the same problem wins. Whether any found something.
bool share_found(Exchange& exchange) {
  const std::vector<std::string> found = exchange.all_gather(cuda::found_algorithms());
  bool any = false;
  for (auto text = found.rbegin(); text != found.rend(); ++text) {
    any = any || !text->empty();
    cuda::add_algorithms(*text);
  }
  return any;
}

}  // namespace

std::string check_products(bool plain_allowed) {
  const std::vector<std::string> plain = cuda::take_prepared_products().plain;
  if (plain.empty()) return "";
  const std::string which = fmt::format("{} product{} of this run, the first '{}'", plain.size(),
                                        plain.size() == 1 ? "" : "s", plain.front());
  check(plain_allowed, Exit::device,
        "device.fallback: cuBLASLt has no algorithm for {}; allow the plain kernel, far from the GPU's speed, with "
        "device.fallback=true",
        which);
  return "plain kernel for " + which;
}

std::vector<std::string> choose_algorithms(const Planned& p, Device& device, Exchange& exchange) {
  const DeviceSpec& spec = p.spec.device;
  std::vector<std::string> notes;
  if (spec.heuristics) {
    const std::string& path = *spec.heuristics;
    cuda::set_algorithms(exchange.all_gather(exchange.rank() == 0 ? read_whole(path) : "")[0], path);
    exchange.all_gather("");  // ranks that are threads of one process have one table
    prepare_kernels(p, device);
    const auto searched = cuda::take_prepared_products().searched;
    if (share_found(exchange) && exchange.rank() == 0) write_whole(path, cuda::all_algorithms());
    notes.push_back(fmt::format("device.heuristics: {}, {} searched", path, searched));
  }
  prepare_kernels(p, device);  // with what all ranks agreed on
  if (const std::string plain = check_products(spec.fallback); !plain.empty()) notes.push_back(plain);
  return notes;
}

}  // namespace trainer
