// Ends a test program with kSkipped, and a sentence, where this CPU has not the instructions that TRAINER_CPU_LEVEL
// asks for.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "core/base/error.h"
#include "kernels/cpu/workers.h"

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in levels.cmake

struct SkipLevel : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    try {
      std::cout << "vector instructions: " << trainer::cpu::name_of(trainer::cpu::cpu_level()) << std::endl;
    } catch (const trainer::Error& e) {
      std::cout << "skipped: " << e.what() << std::endl;
      std::_Exit(kSkipped);
    }
  }
};

CATCH_REGISTER_LISTENER(SkipLevel)

}  // namespace
