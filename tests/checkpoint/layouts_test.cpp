// Any layout saves, any layout loads: states of planned worlds, ranks as threads, compared bit for bit.
#include "tests/checkpoint/world_state.h"

using namespace trainer;
using namespace trainer::test;
namespace fs = std::filesystem;

namespace {

// 3 slices divide nothing, 4 not the kv heads; with two stages the tied embedding lies on both.
std::vector<Layout> many_layouts() {
  std::vector<Layout> all{{}};
  for (const int dp : {2, 3, 4})
    for (const int zero : {0, 1, 2, 3}) all.push_back({.dp = dp, .zero = zero});
  for (const int zero : {1, 3}) all.push_back({.dp = 4, .zero = zero, .zero_shard = 2});
  for (const int tp : {2, 3, 4}) all.push_back({.tp = tp});
  all.push_back({.dp = 2, .zero = 3, .tp = 2});
  all.push_back({.dp = 2, .zero = 1, .pp = 2});
  return all;
}
std::vector<Layout> some_layouts(Precision compute, Family family) {
  std::vector<Layout> all{
      {}, {.dp = 3, .zero = 1}, {.dp = 4, .zero = 3, .zero_shard = 2}, {.tp = 4}, {.dp = 2, .zero = 2, .tp = 3}};
  for (Layout& l : all) {
    l.compute = compute;
    l.family = family;
  }
  return all;
}

// Saves under each, loads under each.
void check_pairs(const std::vector<Layout>& all) {
  std::vector<std::unique_ptr<StateOfWorld>> expected;
  for (const Layout& l : all) {
    expected.push_back(std::make_unique<StateOfWorld>(l));
    expected.back()->fill(1);
  }
  const uint64_t hash = expected[0]->hash();
  for (size_t a = 0; a < all.size(); ++a) {
    INFO("saved by " << all[a].name());
    const TemporaryDirectory directory;
    REQUIRE(all_quiet(save(*expected[a], directory.path, 5)));
    const Manifest saved = open_checkpoint(directory.path + "/step-5").manifest;
    CHECK(saved.state_hash == hash);
    CHECK(saved.files.size() == size_t(expected[a]->size()));
    CHECK(verify_checkpoint(directory.path + "/step-5").empty());
    for (size_t b = 0; b < all.size(); ++b) {
      INFO("loaded by " << all[b].name());
      StateOfWorld loaded(all[b]);
      const Loads loads = resume(loaded, directory.path);
      REQUIRE(all_quiet(loads.thrown));
      CHECK(all_equal<int64_t>(loads.step, 5));
      CHECK(loaded.equals(*expected[b]));
      CHECK(loaded.hash() == hash);
    }
  }
}

}  // namespace

TEST_CASE("any layout saves, any layout loads") { check_pairs(many_layouts()); }

TEST_CASE("any layout saves, any layout loads, where weights are their own masters") {
  check_pairs(some_layouts(Precision::fp32, Family::llama));
}

TEST_CASE("any layout saves, any layout loads, with biases and a position table") {
  check_pairs(some_layouts(Precision::bf16, Family::gpt2));
}

TEST_CASE("replicas divide the writing evenly") {
  StateOfWorld world({.dp = 4, .zero = 0});
  world.fill(2);
  const TemporaryDirectory directory;
  REQUIRE(all_quiet(save(world, directory.path, 1)));
  const Manifest m = open_checkpoint(directory.path + "/step-1").manifest;
  uint64_t total = 0;
  std::vector<uint64_t> bytes(m.files.size());
  for (const StoredTensor& t : m.tensors)
    for (const StoredBox& b : t.boxes) {
      total += b.bytes;
      bytes[b.file] += b.bytes;
    }
  // Not to the byte: what of a part is padding is in no box.
  for (const uint64_t b : bytes) CHECK(std::abs(double(b) - double(total) / 4) < 0.05 * double(total));
}

TEST_CASE("weights alone go into any layout and precision") {
  StateOfWorld from({.dp = 3, .zero = 1});
  from.fill(3);
  const TemporaryDirectory directory;
  REQUIRE(all_quiet(save(from, directory.path, 1)));
  for (const Layout& l : {Layout{.dp = 2, .zero = 2}, Layout{.dp = 4, .zero = 3, .compute = Precision::fp32}}) {
    StateOfWorld to(l), expected(l);
    expected.fill(3);
    const auto thrown = run_ranks(to.size(), [&](const Votes& votes) {
      load_state(open_named_checkpoint(directory.path, votes), to.view(votes.rank), {.weights_only = true}, votes);
    });
    REQUIRE(all_quiet(thrown));
    for (int r = 0; r < to.size(); ++r) {
      for (const StatePart& p : expected.view(r).parts)
        if (p.role == Role::moment1 || p.role == Role::moment2) std::memset(p.values.data, 0, p.values.bytes());
      CHECK(to.arena(r) == expected.arena(r));
    }
  }
}

TEST_CASE("what one rank refuses is refused on all, and they go on together") {
  StateOfWorld first({.dp = 3, .zero = 1}), second({.dp = 3, .zero = 1}), to({.dp = 2, .zero = 3});
  first.fill(4);
  second.fill(5);
  const TemporaryDirectory directory;
  REQUIRE(all_quiet(save(first, directory.path, 1)));
  REQUIRE(all_quiet(save(second, directory.path, 2)));
  std::string wanted;
  SECTION("a bit that flips on the way to one of them") {
    set_failpoints("load_block@rank=1,step=2:flip=5");
    wanted = "rank 1";
  }
  SECTION("a device that fails under one of them") {
    set_failpoints("load_begin@rank=1,step=2:eio");
    wanted = "rank 1";
  }
  SECTION("a shard that is gone") {
    fs::remove(directory.path + "/step-2/" + shard_file_name(2));
    wanted = shard_file_name(2);
  }
  SECTION("the shard of another rank") {
    fs::copy_file(directory.path + "/step-2/" + shard_file_name(1), directory.path + "/step-2/" + shard_file_name(2),
                  fs::copy_options::overwrite_existing);
    wanted = "wanted";
  }
  const Loads loads = resume(to, directory.path);
  set_failpoints("");
  REQUIRE(all_quiet(loads.thrown));
  CHECK(all_equal<int64_t>(loads.step, 1));
  CHECK(all_equal(loads.refused, loads.refused[0]));
  CHECK_THAT(loads.refused[0], Catch::Contains(wanted));
  CHECK(to.hash() == first.hash());
}

TEST_CASE("a disk that is full for one rank ends the save on all, by the same words") {
  StateOfWorld first({.dp = 3, .zero = 2}), second({.dp = 3, .zero = 2});
  first.fill(6);
  second.fill(7);
  for (const Failpoint& p : failpoints()) {
    if (!p.place.starts_with("save:") || p.honours.find("enospc") == std::string_view::npos) continue;
    for (const int rank : {0, 2}) {
      const TemporaryDirectory directory;
      REQUIRE(all_quiet(save(first, directory.path, 1)));
      const bool is_commit = p.name.starts_with("manifest") || p.name == "directory_synced";  // rank 0 alone
      if (is_commit && rank != 0) continue;
      INFO(p.name << " on rank " << rank);
      set_failpoints(fmt::format("{}@rank={}:enospc", p.name, rank));
      const auto thrown = save(second, directory.path, 2);
      set_failpoints("");
      CHECK(all_equal(thrown, thrown[0]));
      CHECK_THAT(thrown[0], Catch::StartsWith(fmt::format("rank {}: ", rank)) && Catch::Contains("No space"));
      CHECK(list_steps(directory.path).size() == 1);
      CHECK(std::distance(fs::directory_iterator(directory.path), fs::directory_iterator{}) == 2);  // and LATEST
      StateOfWorld to({.dp = 2});
      CHECK(all_equal<int64_t>(resume(to, directory.path).step, 1));
      CHECK(to.hash() == first.hash());
    }
  }
}

TEST_CASE("a directory that ranks do not share is noticed before the step has a name") {
  StateOfWorld world({.dp = 2, .zero = 1});
  world.fill(8);
  const TemporaryDirectory shared, elsewhere;
  const auto thrown = run_ranks(2, [&](const Votes& votes) {
    Votes apart = votes;  // rank 1 hears of the directory under another path, as another host's disk would be
    apart.all_gather = [&](std::string_view mine) {
      auto said = votes.all_gather(mine);
      if (votes.rank == 1 && said[0].starts_with("+" + shared.path)) said[0] = "+" + elsewhere.path;
      return said;
    };
    Saver({shared.path, {}, 1, 2}, apart).save(world.view(votes.rank), run_at(1));
  });
  CHECK_THAT(thrown[0], Catch::Contains("file system that all hosts share"));
  CHECK(thrown[0] == thrown[1]);
  CHECK(list_steps(shared.path).empty());
}
