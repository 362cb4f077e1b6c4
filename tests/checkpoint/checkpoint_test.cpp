// Round trips over layouts, and every kind of damage named.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "io/restore.h"
#include "io/save.h"
#include "io/state_hash.h"
#include "tests/checkpoint/state.h"

using namespace trainer;
namespace fs = std::filesystem;

namespace {

const std::vector<std::vector<ParamId>> kOneBucket{{0, 1, 2, 3}}, kTwoBuckets{{2, 1}, {3, 0}};

SaveReport save_to(const std::string& directory, const State& state, int64_t step, Retention retention = {}) {
  return Saver({directory, retention, 1, 3}).save(state.view(), run_at(step));
}

void flip(const std::string& path, int64_t offset, int bit = 3) {
  std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(offset);
  const char c = char(f.get());
  f.seekp(offset);
  f.put(char(c ^ (1 << bit)));
}

std::string why_not(const std::string& step_directory, const State& into) {
  try {
    load_state(open_checkpoint(step_directory), into.view());
    return "";
  } catch (const Error& e) {
    CHECK(e.code() == Exit::checkpoint);
    return e.what();
  }
}

}  // namespace

TEST_CASE("a state comes back bit for bit, whatever buckets and parts it was and is laid out in") {
  for (const bool with_master : {true, false})
    for (const int cuts : {1, 3, 5}) {
      const TemporaryDirectory directory;
      State from(awkward_params(), kOneBucket, with_master, cuts), to(awkward_params(), kTwoBuckets, with_master, 2);
      State expected(awkward_params(), kTwoBuckets, with_master, 2);
      from.fill(1);
      expected.fill(1);
      const SaveReport report = save_to(directory.path, from, 5);
      const auto resumed = resume_newest(directory.path, to.view());
      REQUIRE(resumed);
      CHECK(resumed->refused.empty());
      CHECK(to.bytes() == expected.bytes());
      CHECK(resumed->checkpoint.manifest.run.samples == 20);
      CHECK(resumed->checkpoint.manifest.state_hash == report.state_hash);
      CHECK(state_hash(to.view()) == report.state_hash);
      CHECK(verify_checkpoint(report.path).empty());
    }
}

TEST_CASE("a state of many blocks comes back through both engines") {
  for (const char* engine : {"threads", "io_uring"}) {
    setenv("TRAINER_IO", engine, 1);
    const TemporaryDirectory directory;
    State from(awkward_params(20000), kTwoBuckets, true), to(awkward_params(20000), kTwoBuckets, true);  // 24 MB
    from.fill(2);
    const Failpoints short_results("file_write@n=3:short=12288;file_read@n=2:short=5000");
    const SaveReport report = save_to(directory.path, from, 1);
    load_state(open_checkpoint(report.path), to.view());
    CHECK(from.bytes() == to.bytes());
    unsetenv("TRAINER_IO");
  }
}

TEST_CASE("the state's hash sees every element and no layout") {
  State a(awkward_params(), kOneBucket, true), b(awkward_params(), kTwoBuckets, true, 4);
  a.fill(3);
  b.fill(3);
  const uint64_t hash = state_hash(a.view());
  CHECK(hash == state_hash(b.view()));
  for (const NamedBox& box : boxes_of(a.view()))
    for (int64_t i = 0; i < box.values.row_elements(); ++i) {
      box.values.data[i * 4] ^= std::byte(1);
      CHECK(state_hash(a.view()) != hash);
      box.values.data[i * 4] ^= std::byte(1);
    }
  CHECK(state_hash(a.view()) == hash);
}

TEST_CASE("weights alone start another run, in another precision too") {
  const TemporaryDirectory directory;
  State from(awkward_params(), kOneBucket, false), to(awkward_params(), kOneBucket, true),
      moments(awkward_params(), kOneBucket, true);
  from.fill(4);
  const SaveReport report = save_to(directory.path, from, 9);
  load_state(open_checkpoint(report.path), to.view(), {.weights_only = true});
  moments.fill(4);
  for (const StatePart& p : moments.view().parts)
    if (p.role == Role::moment1 || p.role == Role::moment2) std::memset(p.values.data, 0, p.values.bytes());
  CHECK(to.bytes() == moments.bytes());
}

TEST_CASE("damage is named, and the step before is used") {
  const TemporaryDirectory directory;
  State old_state(awkward_params(), kOneBucket, true), new_state(awkward_params(), kOneBucket, true),
      to(awkward_params(), kTwoBuckets, true);
  old_state.fill(5);
  new_state.fill(6);
  save_to(directory.path, old_state, 1);
  const std::string step = save_to(directory.path, new_state, 2).path, shard = step + "/" + shard_file_name(0),
                    manifest = step + "/" + kManifestFile;
  const Manifest saved = open_checkpoint(step).manifest;
  const StoredTensor* victim = find_tensor(saved, "optimizer.moment2.k_proj.weight");
  REQUIRE(victim);
  std::string wanted;
  SECTION("a flipped bit of a tensor") {
    flip(shard, int64_t(victim->boxes[0].offset));
    wanted = "CRC32C";
  }
  SECTION("a truncated shard") {
    fs::resize_file(shard, fs::file_size(shard) - 1);
    wanted = "wanted " + std::to_string(saved.files[0].bytes) + " bytes";
  }
  SECTION("an empty shard") {
    fs::resize_file(shard, 0);
    wanted = "found 0";
  }
  SECTION("a missing shard") {
    fs::remove(shard);
    wanted = shard_file_name(0);
  }
  SECTION("a link instead of a shard") {
    fs::rename(shard, directory.path + "/elsewhere");
    fs::create_symlink(directory.path + "/elsewhere", shard);
    wanted = "link";
  }
  SECTION("a shard of another step") {
    fs::copy_file(directory.path + "/step-1/" + shard_file_name(0), shard, fs::copy_options::overwrite_existing);
    wanted = "CRC32C";
  }
  SECTION("a missing manifest") {
    fs::remove(manifest);
    wanted = kManifestFile;
  }
  CHECK_THAT(why_not(step, to), Catch::Contains(wanted));
  CHECK_FALSE(verify_checkpoint(step).empty());
  const auto resumed = resume_newest(directory.path, to.view());
  REQUIRE(resumed);
  CHECK(resumed->checkpoint.manifest.run.step == 1);
  REQUIRE(resumed->refused.size() == 1);
  CHECK_THAT(resumed->refused[0].why, Catch::Contains(wanted));
  CHECK(state_hash(to.view()) == state_hash(old_state.view()));
}

TEST_CASE("a manifest damaged at any byte is refused, and says no more than it should") {
  const TemporaryDirectory directory;
  State state(awkward_params(), kOneBucket, true);
  state.fill(7);
  const std::string step = save_to(directory.path, state, 3).path, path = step + "/" + kManifestFile;
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  CHECK_NOTHROW(parse_manifest(text, path));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = char(bad[i] ^ 1);
    CHECK_THROWS_AS(parse_manifest(bad, path), Error);
    CHECK_THROWS_AS(parse_manifest(text.substr(0, i), path), Error);
  }
}

TEST_CASE("a manifest that lies is refused although its checksum is right") {
  const TemporaryDirectory directory;
  State state(awkward_params(), kOneBucket, true);
  state.fill(8);
  const Manifest good = open_checkpoint(save_to(directory.path, state, 3).path).manifest;
  const auto refused = [&](auto change) {
    Manifest m = good;
    change(m);
    CHECK_THROWS_AS(parse_manifest(to_text(m), "M"), Error);
  };
  CHECK_NOTHROW(parse_manifest(to_text(good), "M"));
  refused([](Manifest& m) { m.tensors[0].boxes[0].offset = uint64_t(1) << 60; });
  refused([](Manifest& m) { m.tensors[0].boxes[0].offset = m.files[0].bytes; });
  refused([](Manifest& m) { m.tensors[0].boxes[0].file = 1; });
  refused([](Manifest& m) { m.tensors[0].boxes[0].bytes += 4; });
  refused([](Manifest& m) { m.tensors[0].boxes[0].box.hi[0] += 1; });
  refused([](Manifest& m) { m.tensors[0].boxes.push_back(m.tensors[0].boxes[0]); });
  refused([](Manifest& m) { m.tensors[0].boxes.clear(); });
  refused([](Manifest& m) { m.tensors[0].shape.dims[0] = int64_t(1) << 62; });
  refused([](Manifest& m) { m.tensors.push_back(m.tensors[0]); });
  refused([](Manifest& m) { m.files[0].crcs.pop_back(); });
  refused([](Manifest& m) { m.run.step = -1; });
}

TEST_CASE("another model's checkpoint is refused by tensor and shape") {
  const TemporaryDirectory directory;
  State from(awkward_params(1), kOneBucket, true), bigger(awkward_params(2), kOneBucket, true);
  from.fill(9);
  const std::string step = save_to(directory.path, from, 1).path;
  CHECK_THAT(why_not(step, bigger),
             Catch::Contains("model.embed_tokens.weight") && Catch::Contains("[26, 7]") && Catch::Contains("[13, 7]"));
  CHECK_THROWS_AS(resume_newest(directory.path, bigger.view()), Error);
  CHECK_FALSE(resume_newest(directory.path + "/nothing", bigger.view()));
}

TEST_CASE("retention keeps the newest good steps and the marked ones") {
  const TemporaryDirectory directory;
  State state(awkward_params(), kOneBucket, true);
  state.fill(10);
  const Retention retention{.keep = 2, .keep_every = 10};
  for (int64_t step = 8; step <= 14; ++step) save_to(directory.path, state, step, retention);
  const auto steps_left = [&] {
    std::vector<int64_t> steps;
    for (const StepPath& s : list_steps(directory.path)) steps.push_back(s.step);
    return steps;
  };
  CHECK(steps_left() == std::vector<int64_t>{14, 13, 10});
  // A bad step does not count: the good one before it stays.
  fs::remove(directory.path + "/step-14/" + shard_file_name(0));
  save_to(directory.path, state, 15, retention);
  CHECK(steps_left() == std::vector<int64_t>{15, 14, 13, 10});
  // Where the newest is bad nothing goes.
  fs::remove(directory.path + "/step-15/" + kManifestFile);
  collect_garbage(directory.path, {.keep = 1, .keep_every = {}}, {});
  CHECK(steps_left() == std::vector<int64_t>{15, 14, 13, 10});
}

TEST_CASE("a step that is saved again replaces the one before") {
  const TemporaryDirectory directory;
  State first(awkward_params(), kOneBucket, true), second(awkward_params(), kOneBucket, true);
  first.fill(11);
  second.fill(12);
  save_to(directory.path, first, 4);
  fs::remove(directory.path + "/step-4/" + kManifestFile);
  save_to(directory.path, second, 4);
  CHECK(open_checkpoint(directory.path + "/step-4").manifest.state_hash == state_hash(second.view()));
  CHECK(std::distance(fs::directory_iterator(directory.path), fs::directory_iterator{}) == 2);  // the step, and LATEST
}
