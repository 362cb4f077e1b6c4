// After the second step a step takes no page faults and allocates nothing above 64 KiB: everything lies in the arena.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>

#include "app/data.h"
#include "app/process_stats.h"
#include "app/rig.h"
#include "app/wire.h"
#include "core/engine/engine.h"
#include "core/engine/initialise.h"
#include "core/spec/read.h"
#include "io/feed.h"

namespace {

constexpr size_t kLarge = size_t{64} << 10;
std::atomic<int64_t> large_allocations{0};
void note(size_t bytes) {
  if (bytes > kLarge) large_allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// The linker sends what this program's own code allocates through these (--wrap, see CMakeLists.txt); operator new
// comes here, too.
extern "C" {
void* __real_malloc(size_t);
void* __real_calloc(size_t, size_t);
void* __real_realloc(void*, size_t);
void* __real_aligned_alloc(size_t, size_t);
void* __wrap_malloc(size_t n) { return note(n), __real_malloc(n); }
void* __wrap_calloc(size_t n, size_t m) { return note(n * m), __real_calloc(n, m); }
void* __wrap_realloc(void* p, size_t n) { return note(n), __real_realloc(p, n); }
void* __wrap_aligned_alloc(size_t a, size_t n) { return note(n), __real_aligned_alloc(a, n); }
}
void* operator new(size_t n) {
  note(n);
  if (void* p = __real_malloc(n)) return p;
  throw std::bad_alloc();
}
// Inlined, their free() looks like a mistake to the compiler.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

using namespace trainer;
namespace fs = std::filesystem;

namespace {

RunSpec spec_on(const fs::path& corpus, const std::string& family, const std::string& compute) {
  const std::string text =
      "model: {family: " + family +
      ", num_layers: 3, hidden_size: 192, num_heads: 3, ffn_hidden_size: 512, vocab_size: 257, max_seq_len: 128}\n"
      "data: {tokenizer: bytes, train: [{path: " +
      corpus.string() +
      "}], seq_len: 128}\n"
      "train: {steps: 20, global_batch: 8, micro_batch: 4}\n"
      "precision: {compute: " +
      compute +
      "}\n"
      "device: {kind: cpu, threads: 2}\n";
  const LoadedSpec loaded = read_spec_text(text);
  throw_problems(loaded);
  return loaded.spec;
}

}  // namespace

TEST_CASE("what this test counts, it counts") {
  const int64_t before = large_allocations;
  std::vector<char> large(kLarge + 1);
  REQUIRE(large_allocations == before + 1);
  const int64_t faults = page_faults();
  std::vector<char> pages(size_t{4} << 20);
  pages[pages.size() / 2] = large[0];
  REQUIRE(page_faults() > faults);
}

TEST_CASE("after the second step, steps take no page faults and no allocation above 64 KiB") {
  const auto dir = fs::temp_directory_path() / "trainer_steady_step_test";
  fs::create_directories(dir);
  std::ostringstream ignored;
  pack_text({.tokenizer = "bytes",
             .out = (dir / "corpus").string(),
             .files = {std::string(TESTS_DIR) + "/data/tinyshakespeare.txt"}},
            ignored);
  for (const std::string family : {"gpt2", "llama"})
    for (const std::string compute : {"fp32", "bf16"}) {
      const RunSpec spec = spec_on(dir / "corpus", family, compute);
      install_device(spec);
      Rig rig = open_rig(plan_run(spec, 1, 0));
      const Planned& p = rig.planned;
      initialise_state(p.program, p.model, 1, rig.arena());
      TokenFeed feed(open_dataset(p.spec.data, p.spec.model.vocab_size), p.spec);
      Engine engine(p.program, p.spec, p.mesh, p.model, {*rig.device, rig.groups(), feed});
      const auto step = [&](int64_t n) {
        engine.step(plan_keys(p.spec, 1).front(),
                    {.step = n, .seed = 1, .lr = 1e-3f, .bias1 = 1, .bias2 = 1, .max_norm = 1, .factor = 0, .skip = 0});
        rig.device->drain();
      };
      step(0);
      step(1);
      // A fault of the machine's own making (a page that was migrated) does not come back; one of a step's does.
      int64_t faults = 1;
      const int64_t allocations = large_allocations;
      for (int window = 0; window < 3 && faults > 0; ++window) {
        faults = -page_faults();
        for (int64_t n = 0; n < 10; ++n) step(2 + 10 * window + n);
        faults += page_faults();
      }
      CAPTURE(family, compute);
      REQUIRE(large_allocations == allocations);
      REQUIRE(faults == 0);
    }
  fs::remove_all(dir);
}
