// Batches as the model gets them, filled on a CPU lane.
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "io/feed.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/data/scratch.h"

using namespace trainer;

namespace {

struct Values {
  std::vector<int32_t> tokens, targets, positions, segments;
  std::vector<float> weights;
  std::vector<int64_t> rows;
  bool operator==(const Values&) const = default;
};

// Batches of a feed on the load lane of a device.
class Reader {
 public:
  Reader(const RunSpec& spec, Replica replica = {})
      : n_(size_t(spec.train.micro_batch * spec.data.seq_len)),
        feed_(open_dataset(spec.data, spec.model.vocab_size), spec, replica) {}
  TokenFeed& feed() { return feed_; }
  Values get(Split split, int64_t step, int microbatch = 0) {
    Values v;
    Batch batch;
    add(batch, BatchField::tokens, v.tokens);
    add(batch, BatchField::targets, v.targets);
    add(batch, BatchField::positions, v.positions);
    add(batch, BatchField::segments, v.segments);
    add(batch, BatchField::weights, v.weights);
    add(batch, BatchField::rows, v.rows);
    feed_.fill(device_.lane(Lane::load), split, step, microbatch, batch);
    device_.drain();
    return v;
  }

 private:
  template <class T>
  void add(Batch& batch, BatchField f, std::vector<T>& values) {
    values.assign(n_, T(-7));
    batch[f] = make_tensor(reinterpret_cast<std::byte*>(values.data()), kBatchDTypes[size_t(f)], {int64_t(n_)});
  }
  size_t n_;
  TokenFeed feed_;
  cpu::CpuDevice device_{{}, {}, {.pin = false}};
};

std::vector<int32_t> counting(int32_t begin, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

RunSpec spec_of(const std::string& prefix, int64_t global_batch, int64_t micro_batch, int64_t seq_len) {
  RunSpec spec;
  spec.model.vocab_size = 1000;
  spec.data.seq_len = seq_len;
  spec.data.train = {{prefix, 1}};
  spec.data.valid = {{prefix, 1}};
  spec.train.global_batch = {global_batch, false};
  spec.train.micro_batch = micro_batch;
  return spec;
}

}  // namespace

TEST_CASE("a training batch holds the samples of its order, and targets one token on") {
  const Scratch dir;
  for (const int64_t vocab : {1000, 70000}) {  // uint16 and int32 files
    write_tokens(dir / "a", {counting(0, 500)}, vocab);
    RunSpec spec = spec_of(dir / "a", 6, 3, 7);
    spec.model.vocab_size = vocab;
    Reader reader(spec);
    REQUIRE(reader.feed().microbatches(0) == 2);
    for (int64_t step = 0; step < 40; ++step) {
      const std::vector<int64_t> ids = reader.feed().sample_ids(step);
      for (int m = 0; m < 2; ++m) {
        const Values v = reader.get(Split::train, step, m);
        for (size_t i = 0; i < v.tokens.size(); ++i) {
          REQUIRE(v.tokens[i] == ids[size_t(m) * 3 + i / 7] * 7 + int64_t(i % 7));
          REQUIRE(v.targets[i] == v.tokens[i] + 1);
          REQUIRE(v.positions[i] == int32_t(i % 7));
          REQUIRE(v.segments[i] == 0);
          REQUIRE(v.weights[i] == 1);
          REQUIRE(v.rows[i] == (step * 6 + m * 3) * 7 + int64_t(i));
        }
      }
    }
  }
}

TEST_CASE("documents restart positions and segments, and no target crosses into another") {
  const Scratch dir;
  write_tokens(dir / "d", {counting(0, 3), counting(10, 6), counting(20, 1), {}, counting(30, 7)}, 1000);
  // The stream: 0 1 2 | 10 11 12 13 14 15 | 20 | 30 ... 36; samples of 8: [0 1 2 10 11 12 13 14] 15, [15 20 30 ...
  // 35] 36.
  RunSpec spec = spec_of(dir / "d", 2, 2, 8);
  spec.data.packing = Packing::document;
  const Values v = Reader(spec).get(Split::valid, 0);
  REQUIRE(v.tokens == std::vector<int32_t>{0, 1, 2, 10, 11, 12, 13, 14, 15, 20, 30, 31, 32, 33, 34, 35});
  REQUIRE(v.targets == std::vector<int32_t>{1, 2, 10, 11, 12, 13, 14, 15, 20, 30, 31, 32, 33, 34, 35, 36});
  REQUIRE(v.positions == std::vector<int32_t>{0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 0, 1, 2, 3, 4, 5});
  REQUIRE(v.segments == std::vector<int32_t>{0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 2, 2, 2, 2, 2, 2});
  REQUIRE(v.weights == std::vector<float>{1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("evaluation sees each validation sequence once and pads the last pass") {
  const Scratch dir;
  write_tokens(dir / "a", {counting(0, 51)}, 1000);
  RunSpec spec = spec_of(dir / "a", 4, 4, 10);  // five sequences in passes of four
  Reader reader(spec);
  REQUIRE(reader.feed().evaluation_passes() == 2);
  for (int again = 0; again < 2; ++again) {
    REQUIRE(reader.get(Split::valid, 0).tokens == counting(0, 40));
    Values wanted;
    wanted.tokens = counting(40, 10);
    wanted.tokens.resize(40);
    const Values v = reader.get(Split::valid, 1);
    REQUIRE(v.tokens == wanted.tokens);
    REQUIRE(std::accumulate(v.weights.begin(), v.weights.end(), 0.f) == 10);
    REQUIRE(v.targets.back() == 0);
    REQUIRE(v.rows.back() == 79);
    reader.get(Split::train, again);  // training in between
  }
}

TEST_CASE("a feed that starts anywhere gives the batches of one that ran through") {
  const Scratch dir;
  write_tokens(dir / "a", {counting(0, 700)}, 1000);
  write_tokens(dir / "b", {counting(700, 300)}, 1000);
  RunSpec spec = spec_of(dir / "a", 4, 2, 5);
  spec.data.train = {{dir / "a", 0.7}, {dir / "b", 0.3}};
  spec.train.ramp = {{200, {6, false}}};
  Reader through(spec);
  std::vector<std::vector<Values>> steps;
  std::vector<uint64_t> hashes;
  for (int64_t step = 0; step < 30; ++step) {
    steps.emplace_back();
    for (int m = 0; m < through.feed().microbatches(step); ++m)
      steps.back().push_back(through.get(Split::train, step, m));
    hashes.push_back(through.feed().data_hash(step));
  }
  Reader jumping(spec);
  for (const int64_t step : {29, 0, 11, 12, 13, 5, 5, 20}) {
    for (int m = 0; m < jumping.feed().microbatches(step); ++m)
      REQUIRE(jumping.get(Split::train, step, m) == steps[size_t(step)][size_t(m)]);
    REQUIRE(jumping.feed().data_hash(step) == hashes[size_t(step)]);
  }
  REQUIRE(std::set<uint64_t>(hashes.begin(), hashes.end()).size() == hashes.size());
}

TEST_CASE("the data hash depends on the data, but on neither micro-batch nor replicas") {
  const Scratch dir;
  write_tokens(dir / "a", {counting(0, 700)}, 1000);
  auto changed = counting(0, 700);
  for (int32_t& token : changed) token ^= 1;
  write_tokens(dir / "c", {changed}, 1000);
  const auto hash = [&](const std::string& prefix, int64_t micro_batch, int replicas) {
    uint64_t sum = 0;
    for (int r = 0; r < replicas; ++r) {
      Reader reader(spec_of(prefix, 12, micro_batch, 5), {r, replicas});
      for (int m = 0; m < reader.feed().microbatches(3); ++m) reader.get(Split::train, 3, m);
      sum += reader.feed().data_hash(3);
    }
    return sum;
  };
  const uint64_t wanted = hash(dir / "a", 12, 1);
  REQUIRE(hash(dir / "a", 3, 1) == wanted);
  REQUIRE(hash(dir / "a", 3, 2) == wanted);
  REQUIRE(hash(dir / "a", 1, 4) == wanted);
  REQUIRE(hash(dir / "c", 12, 1) != wanted);
}

TEST_CASE("a file that changes under the run and ids outside the vocabulary end it with file and offset") {
  const Scratch dir;
  write_tokens(dir / "a", {counting(0, 101)}, 1000);
  RunSpec spec = spec_of(dir / "a", 10, 10, 10);
  {
    Reader reader(spec);
    std::filesystem::resize_file(dir / "a.bin", 150);
    REQUIRE_THAT(error_of([&] { reader.get(Split::train, 0); }), Catch::Contains("the file ends, it had 202 bytes"));
  }
  std::string bytes(202, '\0');
  bytes[61] = '\7';  // token 30 becomes 0x700
  write_file(dir / "a.bin", bytes);
  Reader reader(spec);
  REQUIRE_THAT(error_of([&] { reader.get(Split::train, 0); }), Catch::Contains("a.bin at byte 60: token id 1792"));
}

TEST_CASE("waiting is measured, and asking starts the count again") {
  const Scratch dir;
  write_tokens(dir / "a", {counting(0, 500)}, 1000);
  Reader reader(spec_of(dir / "a", 2, 2, 10));
  REQUIRE(reader.feed().waited_seconds() == 0);
  reader.get(Split::train, 0);
  REQUIRE(reader.feed().waited_seconds() > 0);
  REQUIRE(reader.feed().waited_seconds() == 0);
}
