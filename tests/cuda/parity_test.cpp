// The parity grid's corners on emulated GPUs: what a layout computes there is what one rank of the CPU computes.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/cuda/in_child.h"
#include "tests/cuda/matmul_settings.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/ranks/compare_layouts.h"
#include "tests/ranks/layout_grid.h"

using namespace trainer;
using namespace trainer::test;

namespace {

Layout on_gpus(Layout l) {
  l.device = DeviceChoice::cuda;
  return l;
}

// Of at most four ranks.
std::vector<Layout> first_of(const std::vector<Layout>& grid, size_t count) {
  std::vector<Layout> cells;
  for (const Layout& l : grid)
    if (cells.size() < count && l.ranks() <= 4) cells.push_back(l);
  return cells;
}

constexpr Family kFamilies[] = {Family::gpt2, Family::llama};

}  // namespace

TEST_CASE("one GPU computes what a CPU computes") {
  for (Family family : kFamilies)
    for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::full})
      compare(on_gpus({.family = family, .accumulation = 2, .recompute = r}));
  compare(on_gpus({.family = Family::gpt2, .tied = false, .dropout = 0.2f}));
}

TEST_CASE("data parallel GPUs, every ZeRO stage") {
  for (Family family : kFamilies)
    for (int zero : {0, 1, 2, 3}) compare(on_gpus({.family = family, .dp = 2, .zero = zero, .accumulation = 2}));
}

TEST_CASE("tensor parallel GPUs") {
  for (Family family : kFamilies)
    for (bool sequence_parallel : {false, true})
      compare(on_gpus({.family = family, .tp = 2, .sequence_parallel = sequence_parallel}));
  compare(on_gpus({.tp = 2, .dp = 2, .zero = 3, .sequence_parallel = true}));
}

// The emulator is slow, and its slowness grows with the ranks.
TEST_CASE("cells of the parity grids on GPUs") {
  for (const Layout& l : first_of(layout_grid(), 12)) compare(on_gpus(l));
  for (const Layout& l : first_of(pipeline_grid(), 10)) compare(on_gpus(l));
}

TEST_CASE("bf16 on GPUs") {
  compare(on_gpus({.compute = Precision::bf16}));
  compare(on_gpus({.dp = 2, .zero = 2, .compute = Precision::bf16}));
  Layout wide{.tp = 2, .compute = Precision::bf16};
  wide.head_dim = 64;  // tensor cores, of either kind
  for (const char* arch : {"80", "90"}) {
    const Setting device("FAKECUDA_ARCH", arch);
    compare(on_gpus(wide));
  }
}

TEST_CASE("steps as graphs give the same bits") {
  for (Layout l : {Layout{.family = Family::gpt2, .accumulation = 2, .recompute = RecomputeKind::full, .dropout = 0.2f},
                   Layout{.dp = 2, .zero = 1, .accumulation = 2}, Layout{.dp = 2, .zero = 3, .accumulation = 2},
                   Layout{.family = Family::gpt2, .tp = 2, .sequence_parallel = true}, Layout{.tp = 2, .dp = 2},
                   Layout{.accumulation = 4, .pp = 2}}) {
    l = on_gpus(l);
    Layout graph = l;
    graph.graph = true;
    INFO(l.name());
    const uint64_t launches = fake::counters.graph_launches;
    compare_bits(run(l), run(graph));
    REQUIRE(fake::counters.graph_launches - launches == uint64_t((kSteps - 1) * l.ranks()));
  }
}

TEST_CASE("updates that run ahead of the world on GPUs are those that wait for it") {
  for (const double clip : {1e9, 1e-3}) {
    Layout waits = on_gpus({.zero = 1, .accumulation = 2, .pp = 2});
    waits.dp = 2;
    waits.schedule = PipelineKind::zb_h2;
    waits.clip = clip;
    Layout ahead = waits;
    ahead.ahead = true;
    const Outcomes found = run(ahead);
    compare_bits(run(waits), found);
    REQUIRE(found.taken_back == (clip == 1e9 ? 0 : kSteps));
  }
}

TEST_CASE("GPUs give the same bits again") {
  for (const Layout& l : {Layout{.dp = 2, .zero = 1}, Layout{.tp = 2, .sequence_parallel = true}})
    compare_bits(run(on_gpus(l)), run(on_gpus(l)));
}

TEST_CASE("GPUs take the algorithms that the ranks of an earlier run found") {
  const MatmulSettings settings;
  const auto file = std::filesystem::temp_directory_path() / ("trainer-parity-algorithms-" + std::to_string(getpid()));
  Layout l{.dp = 2, .zero = 1};
  l.heuristics = file;
  const Outcomes found = run(on_gpus(l));
  REQUIRE(std::filesystem::exists(file));
  MatmulSettings::reset();
  compare_bits(run(on_gpus(l)), found);
  std::filesystem::remove(file);
}
