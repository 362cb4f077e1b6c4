// The order of samples: permutations, blends, steps of a growing batch, replicas.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "io/batch_order.h"
#include "io/permutation.h"
#include "tests/data/scratch.h"

using namespace trainer;

namespace {

RunSpec small_spec(int64_t global_batch, int64_t micro_batch, int64_t seq_len) {
  RunSpec spec;
  spec.model.vocab_size = 1000;
  spec.data.seq_len = seq_len;
  spec.train.global_batch = {global_batch, false};
  spec.train.micro_batch = micro_batch;
  return spec;
}

std::string write_counting(const std::string& prefix, int32_t tokens) {
  std::vector<int32_t> document(static_cast<size_t>(tokens));
  std::iota(document.begin(), document.end(), 0);
  return write_tokens(prefix, {document}, 1000);
}

}  // namespace

TEST_CASE("the permutation is one, for every size and key") {
  for (uint64_t n = 1; n < 300; ++n) {
    for (uint64_t key : {0u, 1u, 77u}) {
      const Permutation permutation(n, key);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t to = permutation(i);
        REQUIRE(to < n);
        REQUIRE(!seen[to]);
        seen[to] = true;
      }
    }
  }
}

TEST_CASE("permutations look random and differ by key") {
  constexpr uint64_t kSize = 10007;
  const Permutation a(kSize, 1), b(kSize, 2);
  int fixed = 0, equal = 0, rising = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    fixed += a(i) == i;
    equal += a(i) == b(i);
    rising += i > 0 && a(i) > a(i - 1);
  }
  REQUIRE(fixed < 10);  // 1 is expected of each
  REQUIRE(equal < 10);
  REQUIRE(std::abs(rising - int(kSize / 2)) < 150);  // 5 standard deviations are about 145
}

TEST_CASE("a blend keeps every source's share to within one sample, always, and numbers its samples without gaps") {
  const std::vector<std::vector<double>> cases{{1},
                                               {0.7, 0.3},
                                               {1, 1, 1},
                                               {0.5, 0.25, 0.125, 0.125},
                                               {3, 5, 7, 11, 13},
                                               {0.998, 0.001, 0.001},
                                               {std::sqrt(2.0), 1, M_PI}};
  for (const auto& weights : cases) {
    const Blend blend(weights);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<int64_t> count(weights.size());
    for (int64_t s = 0; s < 20000; ++s) {
      const auto [source, ordinal] = blend.at(s);
      if (ordinal != count[size_t(source)]) FAIL("sample " << s << " has ordinal " << ordinal);
      ++count[size_t(source)];
      for (size_t k = 0; k < weights.size(); ++k)
        if (std::abs(double(count[k]) - weights[k] / total * double(s + 1)) > 1.5)
          FAIL("source " << k << " has " << count[k] << " of " << s + 1);
    }
  }
  REQUIRE(Blend(std::vector<double>{0.7, 0.3}).period() == 10);
  REQUIRE(Blend(std::vector<double>{1e-9, 1}).per_period(0) == 1);
  REQUIRE_THROWS_AS(Blend(std::vector<double>{1.0, 0.0}), Error);
  REQUIRE_THROWS_AS(Blend(std::vector<double>{}), Error);
}

TEST_CASE("with whole weights the share holds to less than one sample") {
  const std::vector<double> weights{1, 2, 3, 5, 8, 13, 21};
  const Blend blend(weights);
  std::vector<int64_t> count(weights.size());
  for (int64_t s = 0; s < 1000; ++s) {
    ++count[size_t(blend.at(s).source)];
    for (size_t k = 0; k < weights.size(); ++k)
      REQUIRE(std::abs(double(count[k]) - weights[k] / 53 * double(s + 1)) < 1);
  }
}

TEST_CASE("every source gives each of its samples once per epoch, in another order each time") {
  const Scratch dir;
  DataSpec spec;
  spec.seq_len = 4;
  spec.train = {{write_counting(dir / "a", 401), 0.7}, {write_counting(dir / "b", 101), 0.3}};
  const Dataset set = open_dataset(spec, 1000);
  const TrainOrder order(set.train, set.weights, 5), other_seed(set.train, set.weights, 6);
  std::map<std::pair<int, int64_t>, std::vector<int64_t>> epochs;
  int same = 0;
  for (int64_t s = 0; s < 1000; ++s) {
    const SampleId id = order.at(s);
    epochs[{id.source, order.epoch(s)}].push_back(id.sample);
    same += other_seed.at(s) == id;
  }
  REQUIRE(same < 60);
  for (const auto& [key, samples] : epochs) {
    const int64_t n = set.train[size_t(key.first)].samples();
    REQUIRE(n == (key.first == 0 ? 100 : 25));
    const std::set<int64_t> distinct(samples.begin(), samples.end());
    REQUIRE(distinct.size() == samples.size());
    REQUIRE(int64_t(samples.size()) <= n);
    REQUIRE(*distinct.rbegin() < n);
  }
  REQUIRE(epochs[{0, 0}].size() == 100);
  REQUIRE(epochs[{1, 0}].size() == 25);
  REQUIRE(epochs[{0, 0}] != epochs[{0, 1}]);
}

TEST_CASE("the sequences of a step depend on neither micro-batch nor replicas") {
  const Scratch dir;
  RunSpec spec = small_spec(24, 1, 4);
  spec.data.train = {{write_counting(dir / "a", 999), 1}};
  const auto sequences = [&](int64_t micro_batch, int replicas) {
    spec.train.micro_batch = micro_batch;
    std::vector<int64_t> all;
    for (int r = 0; r < replicas; ++r) {
      const BatchOrder order(open_dataset(spec.data, 1000), spec, {r, replicas});
      for (int m = 0; m < order.microbatches(7); ++m)
        for (int64_t row = 0; row < micro_batch; ++row) all.push_back(order.first_sequence({Split::train, 7, m}) + row);
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  std::vector<int64_t> wanted(24);
  std::iota(wanted.begin(), wanted.end(), 7 * 24);
  for (const int64_t micro_batch : {1, 2, 4, 12})
    for (const int replicas : {1, 2}) REQUIRE(sequences(micro_batch, replicas) == wanted);
  spec.train.micro_batch = 5;
  REQUIRE_THAT(error_of([&] { BatchOrder(open_dataset(spec.data, 1000), spec, {}); }, Exit::spec),
               Catch::Contains("24 sequences"));
}

TEST_CASE("a growing batch: sequences before a step are the sum of the steps before it") {
  RunSpec spec = small_spec(4, 2, 8);
  spec.train.ramp = {{100, {6, false}}, {300, {64, true}}, {1000, {10, false}}};  // 64 tokens are 8 sequences
  const StepSizes sizes(spec);
  int64_t before = 0;
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 60; ++step) {
    REQUIRE(sizes.sequences_before(step) == before);
    const int64_t tokens = before * 8;
    REQUIRE(sizes.sequences(step) == (tokens < 100 ? 4 : tokens < 300 ? 6 : tokens < 1000 ? 8 : 10));
    before += sizes.sequences(step);
    seen.insert(sizes.sequences(step));
  }
  REQUIRE(seen == std::set<int64_t>{4, 6, 8, 10});
}

TEST_CASE("the split keeps training and validation apart, and evaluation sees every sample once") {
  const Scratch dir;
  DataSpec spec;
  spec.seq_len = 10;
  spec.split = 0.9;
  spec.train = {{write_counting(dir / "a", 1000), 1}};
  const Dataset set = open_dataset(spec, 1000);
  REQUIRE(set.train[0].end == 900);
  REQUIRE(set.train[0].samples() == 89);
  REQUIRE(set.valid[0].first_token(0) == 900);
  REQUIRE(set.valid[0].samples() == 9);
  const ValidOrder all(set.valid, std::nullopt), some(set.valid, 3);
  REQUIRE(all.sequences() == 9);
  for (int64_t i = 0; i < 9; ++i) REQUIRE(all.at(i) == SampleId{0, i});
  REQUIRE(some.sequences() == 3);
  REQUIRE(some.at(2) == SampleId{0, 6});
}

TEST_CASE("corpora that cannot give a sample, and tokenizers that do not fit, are refused") {
  const Scratch dir;
  DataSpec spec;
  spec.seq_len = 10;
  spec.train = {{write_tokens(dir / "empty", {}, 1000), 1}};
  REQUIRE_THAT(error_of([&] { open_dataset(spec, 1000); }), Catch::Contains("empty.bin: no tokens"));
  spec.train = {{write_counting(dir / "short", 10), 1}};
  REQUIRE_THAT(error_of([&] { open_dataset(spec, 1000); }),
               Catch::Contains("short.bin: 10 of its 10 tokens") && Catch::Contains("= 11"));
  spec.train = {{write_counting(dir / "fits", 11), 1}};
  REQUIRE(open_dataset(spec, 1000).train[0].samples() == 1);
  REQUIRE_THAT(error_of([&] { open_dataset(spec, 999); }), Catch::Contains("vocabulary of 1000"));
  spec.tokenizer = "bytes";
  REQUIRE_THAT(error_of([&] { open_dataset(spec, 1000); }), Catch::Contains("tokenizer `bytes` has hash"));
}
