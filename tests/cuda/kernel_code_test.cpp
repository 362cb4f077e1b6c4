// Gates on what nvcc made of the kernels: what no emulated device can see.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "tests/cuda/cubin.h"

using namespace trainer::test;

namespace {

constexpr const char* kTable = TESTS_DIR "/cuda/kernel_code.txt";
constexpr const char* kColumns =
    "# kernel | GPU: registers, bytes of shared memory, loads of 16 bytes, stores, asynchronous copies, mma";

const std::vector<KernelCode>& built() {
  static const auto kernels = kernels_in(KERNELS);
  return kernels;
}

bool matches(const KernelCode& k, const char* pattern) { return std::regex_search(k.name, std::regex(pattern)); }

// "90a", where sm_90 was asked for as 90a: kernels of warp groups always are.
std::string architecture(const KernelCode& k) {
  std::istringstream all(ARCHITECTURES);
  for (std::string name; std::getline(all, name, ',');)
    if (std::stoi(name) == k.sm) return name.substr(0, name.find('-'));
  return std::to_string(k.sm) + (matches(k, "_sm90<") ? "a" : "");
}

bool is_built(const std::string& name) {
  return std::any_of(built().begin(), built().end(),
                     [&](const KernelCode& k) { return architecture(k) == name && !matches(k, "_sm90<"); });
}

// Figures by kernel and GPU.
struct KernelOnGpu {
  std::string kernel;
  int sm;
  std::string gpu;
  auto operator<=>(const KernelOnGpu&) const = default;
};
using Table = std::map<KernelOnGpu, std::string>;
Table table_of(const std::vector<KernelCode>& kernels) {
  Table table;
  for (const KernelCode& k : kernels)
    table[{k.name, k.sm, architecture(k)}] =
        fmt::format("{} {} {} {} {} {}", k.registers, k.shared, k.loads16, k.stores16, k.copies, k.mma);
  return table;
}

struct Checked {
  std::string compiler;  // "# nvcc 13.0.88"
  Table table;
};
Checked checked_in() {
  std::ifstream file(kTable);
  Checked c;
  std::getline(file, c.compiler);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::string kernel = line.substr(0, line.find(" | "));
    for (size_t at = kernel.size(); at < line.size();) {
      const size_t begin = at + 3, colon = line.find(": ", begin);
      REQUIRE(colon != std::string::npos);
      at = std::min(line.find(" | ", colon), line.size());
      const std::string gpu = line.substr(begin, colon - begin);
      c.table[{kernel, std::stoi(gpu), gpu}] = line.substr(colon + 2, at - colon - 2);
    }
  }
  return c;
}

std::string text_of(const KernelCode& k) { return fmt::format("{} on sm_{}", k.name, architecture(k)); }

}  // namespace

TEST_CASE("kernel code: the checked-in table is what nvcc made") {
  const Checked checked = checked_in();
  if (checked.compiler != "# nvcc " NVCC) {
    WARN("skipped: tests/cuda/kernel_code.txt is of '" << checked.compiler.substr(2) << "', this build of nvcc " NVCC);
    return;
  }
  const Table now = table_of(built());
  std::string changes;
  for (const auto& [kernel, figures] : now) {
    const auto before = checked.table.find(kernel);
    if (before == checked.table.end() || before->second != figures)
      changes += fmt::format("\n{} | {}: {} now, {} in the table", kernel.kernel, kernel.gpu, figures,
                             before == checked.table.end() ? "nothing" : before->second);
  }
  for (const auto& [kernel, figures] : checked.table)
    if (!now.contains(kernel) && is_built(kernel.gpu))
      changes += fmt::format("\n{} | {}: gone", kernel.kernel, kernel.gpu);
  INFO(kColumns << changes << "\nif that is meant, write the table again: " PROGRAM " '[write]'");
  REQUIRE(changes.empty());
}

TEST_CASE("writes the table of kernel code", "[.][write]") {
  Table all = checked_in().table;  // of architectures that this build leaves out
  std::erase_if(all, [](const auto& entry) { return is_built(entry.first.gpu); });
  for (const auto& [kernel, figures] : table_of(built())) all[kernel] = figures;
  std::ofstream file(kTable);
  file << "# nvcc " NVCC "\n" << kColumns;
  std::string last;
  for (const auto& [kernel, figures] : all) {
    if (kernel.kernel != last) file << '\n' << kernel.kernel;
    last = kernel.kernel;
    file << " | " << kernel.gpu << ": " << figures;
  }
  file << '\n';
}

TEST_CASE("kernel code: no thread keeps anything in local memory, no block wants more registers than there are") {
  for (const KernelCode& k : built()) {
    CAPTURE(text_of(k));
    REQUIRE(k.stack == 0);
    REQUIRE(k.registers > 0);
    REQUIRE(k.registers <= 255);
    REQUIRE(k.shared <= 48 << 10);
  }
}

// A vector kernel is named by its elements per access, 16 bytes of the wider operand, or by `true` at the end.
TEST_CASE("kernel code: vector kernels move 16 bytes at once, scalar ones do not") {
  int vectors = 0;
  for (const KernelCode& k : built()) {
    if (!matches(k, "_kernel<")) continue;
    CAPTURE(text_of(k));
    const bool narrow = matches(k, "CopyBytes<[1-8]>"), vector = !narrow && matches(k, "_kernel<(4|8|16), |, true>$"),
               scalar = narrow || matches(k, "_kernel<1, |, false>$");
    vectors += vector;
    if (vector) REQUIRE(k.loads16 + k.stores16 > 0);
    if (scalar) REQUIRE(k.loads16 + k.stores16 == 0);
    if (matches(k, "map_kernel<8, ")) REQUIRE((k.loads16 > 0 && k.stores16 > 0));  // all of it bf16
  }
  REQUIRE(vectors > 0);
}

// A tile of at least 32 keys; D / 16 or 2 steps of 16 along what is summed, in pieces of 8 columns.
TEST_CASE("kernel code: attention multiplies on tensor cores what its tiles need, from copies in flight") {
  const struct {
    const char* kernel;
    int products;
  } kernels[] = {{"attention_forward", 2}, {"attention_backward_q", 3}, {"attention_backward_kv", 4}};
  for (const auto& [kernel, products] : kernels)
    for (int width : {64, 96, 128}) {
      const std::string name = fmt::format("{}<{}>", kernel, width);
      int found = 0;
      for (const KernelCode& k : built()) {
        if (k.name != name) continue;
        CAPTURE(text_of(k), k.mma, k.copies);
        ++found;
        REQUIRE(k.mma > 0);
        REQUIRE(k.mma % (products * width / 4) == 0);
        REQUIRE(k.copies > 0);
        REQUIRE(k.stores16 > 0);
      }
      CAPTURE(name);
      REQUIRE(found > 0);
    }
}

// Scores are D / 16 steps, sums as many as a tile has rows by 16. What is begun behind the scores of the next tile
// stands twice, for the first and the last have none. Every tile comes in boxes of 64 columns. Waits are those of the
// source: nvcc puts one behind each product where it cannot keep them in flight, and calls that information.
// `exponentials` of a thread are found while products are under way: ptxas may move a wait up to the branch before it.
TEST_CASE("kernel code: warp groups multiply what their tiles need, from tiles in flight") {
  const struct {
    const char* kernel;
    int scores, sums, tiles, waits, exponentials;
  } kernels[] = {{"attention_forward_sm90", 2, 2 * 8, 3, 4, 64},
                 {"attention_backward_q_sm90", 4, 2 * 4, 4, 6, 32},
                 {"attention_backward_kv_sm90", 2, 2 * 4, 4, 4, 0}};
  for (const auto& [kernel, scores, sums, tiles, waits, exponentials] : kernels)
    for (int width : {64, 96, 128}) {
      const std::string name = fmt::format("{}<{}>", kernel, width);
      int found = 0;
      for (const KernelCode& k : built()) {
        if (k.name != name) continue;
        CAPTURE(text_of(k));
        ++found;
        REQUIRE(k.sm == 90);
        REQUIRE(k.mma == scores * width / 16 + sums);
        REQUIRE(k.mma_waits == waits);
        REQUIRE(k.beside_products >= exponentials);
        REQUIRE(k.copies == tiles * (width == 64 ? 1 : 2));
        REQUIRE(k.stores16 > 0);
      }
      CAPTURE(name);
      REQUIRE(found == 1);
    }
}
