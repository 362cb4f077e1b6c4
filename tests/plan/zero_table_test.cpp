// ZeRO's published arithmetic, from plans: Rajbhandari, Rasley, Ruwase, He 2020, "ZeRO: Memory Optimizations Toward
// Training Trillion Parameter Models", figure 1 and table 1: 7.5 billion parameters of 16 bits, gradients of 16 bits,
// and K = 12 bytes of Adam (master and two moments of 32 bits) on N ranks.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>

#include "tests/plan/worlds.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr int64_t kLayers = 36, kWidth = 4096, kVocab = 60'096, kTokens = 1024;
constexpr int64_t kLayer = 12 * kWidth * kWidth + 13 * kWidth;  // GPT-2's matrices, biases and norms
constexpr int64_t kTables = (kVocab + kTokens) * kWidth, kLastNorm = 2 * kWidth;
constexpr int64_t kParameters = kTables + kLayers * kLayer + kLastNorm;
static_assert(kParameters == 7'500'029'952);

RunSpec published(int ranks, int zero) {
  RunSpec s = spec_of({.dp = ranks, .zero = zero, .layers = int(kLayers), .family = Family::gpt2});
  ModelSpec& m = s.model;
  m.hidden_size = kWidth;
  m.num_heads = m.num_kv_heads = 32;
  m.head_dim = kWidth / 32;
  m.ffn_hidden_size = 4 * kWidth;
  m.vocab_size = kVocab;
  m.max_seq_len = s.data.seq_len = kTokens;
  s.train.micro_batch = 1;
  s.parallel.dp = ranks;
  s.precision.gradients = s.precision.reduce = Precision::bf16;
  return s;
}

// Most bytes of slots of one class that live at one time of a step.
int64_t peak(const Plan& plan, SlotClass kind) {
  int64_t live = 0, most = 0;
  for (const Instr& i : plan.code) {
    const auto count = [&](Access access) {
      int64_t bytes = 0;
      for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u)
        if (const Slot& s = plan.slots[plan.uses[u].slot]; s.kind == kind && plan.uses[u].access == access)
          bytes += int64_t(s.bytes());
      return bytes;
    };
    most = std::max(most, live += count(Access::write));
    live -= count(Access::free);
  }
  return most;
}

// Bytes of one rank.
struct Held {
  int64_t weights = 0, gradients = 0, adam = 0;  // what the paper counts
  int64_t gathered = 0, unreduced = 0;           // what it does not: at most, of whole buckets on their way
  int64_t total() const { return weights + gradients + adam; }
};
Held held(int ranks, int zero) {
  const RunSpec spec = published(ranks, zero);
  const Model model = build_model(spec, Mesh::of(spec, ranks, 0));
  const Program p = make_program({spec, model, ranks, {{StepKind::train, 2, kTokens}}}, 0);
  Held h;
  int64_t parameters = 0, padded = 0;
  for (const Bucket& b : p.buckets) {
    parameters += b.size;
    padded += b.padded;
  }
  REQUIRE(parameters == kParameters);
  REQUIRE(padded == kParameters);  // every bucket is a multiple of 1024 elements
  for (const StateSlot& s : p.state) (s.index == int(Role::weight) ? h.weights : h.adam) += int64_t(s.bytes);
  const Plan& plan = p.plans[0].second;
  (zero < 2 ? h.gradients : h.unreduced) = peak(plan, SlotClass::gradient);
  if (zero >= 2) h.gradients = peak(plan, SlotClass::reduced);
  h.gathered = peak(plan, SlotClass::weight);
  return h;
}

// The paper's formulas: 2 + 2 + 12 bytes of a parameter, sharded one after the other.
int64_t formula(int zero, int64_t ranks) {
  const auto part = [&](int64_t bytes, bool sharded) { return bytes * kParameters / (sharded ? ranks : 1); };
  return part(2, zero >= 3) + part(2, zero >= 2) + part(12, zero >= 1);
}

std::string as_printed(int64_t bytes, const std::string& published) {
  const size_t dot = published.find('.');
  return fmt::format("{:.{}f}", double(bytes) * 1e-9, dot == std::string::npos ? 0 : published.size() - dot - 1);
}

}  // namespace

TEST_CASE("ZeRO's published bytes of a rank") {
  struct Row {
    int ranks;
    std::array<const char*, 4> gigabytes;  // as printed, by stage; stage 0 is figure 1's baseline
  };
  for (const Row& row : {Row{4, {"120", "52.5", "41.3", "30"}}, Row{16, {"120", "35.6", "21.6", "7.5"}},
                         Row{64, {"120", "31.4", "16.6", "1.88"}}, Row{256, {"120", "30.4", "15.4", "0.47"}},
                         Row{1024, {"120", "30.1", "15.1", "0.12"}}})
    for (int zero = 0; zero < 4; ++zero) {
      CAPTURE(row.ranks, zero);
      const Held h = held(row.ranks, zero);
      CHECK(h.total() == formula(zero, row.ranks));
      CHECK(as_printed(h.total(), row.gigabytes[size_t(zero)]) == row.gigabytes[size_t(zero)]);
      // The tied tables get their gradient from the head first and from the embedding last, so they are whole beside
      // each layer; the head's weights are gathered while the last layer's stay for its backward pass.
      CHECK(h.unreduced == (zero >= 2 ? 2 * (kTables + kLayer) : 0));
      CHECK(h.gathered == (zero == 3 ? 2 * (kTables + kLastNorm + kLayer) : 0));
    }
}
