#include "tests/fakecuda/settings.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace fake {
namespace {

long number(const char* name, long otherwise) {
  const char* s = std::getenv(name);
  return s ? std::atol(s) : otherwise;
}

}  // namespace

uint64_t first_seed() { return uint64_t(number("FAKECUDA_SEED", 1)); }
bool eager() { return std::getenv("FAKECUDA_EAGER") != nullptr; }
int device_count() { return int(number("FAKECUDA_DEVICES", 8)); }
size_t memory_of_a_device() { return size_t(number("FAKECUDA_MEM_MB", 1024)) << 20; }
int driver_version() { return int(number("FAKECUDA_DRIVER", CUDART_VERSION)); }
bool peer_access() { return number("FAKECUDA_PEER", 1) != 0; }
double hang_seconds() {
  const char* s = std::getenv("FAKECUDA_HANG_S");
  return s ? std::atof(s) : 30;
}

int compute_capability(int device) {
  const char* list = std::getenv("FAKECUDA_ARCH");
  if (!list) return 90;
  for (const char* comma; device > 0 && (comma = std::strchr(list, ',')); --device) list = comma + 1;
  return std::atoi(list);
}

bool injected(const char* api) {
  static std::atomic<long> calls{0};
  const char* setting = std::getenv("FAKECUDA_FAIL");
  const size_t length = std::strlen(api);
  if (!setting || std::strncmp(setting, api, length) || setting[length] != ':') return false;
  return ++calls == std::atol(setting + length + 1);
}

}  // namespace fake
