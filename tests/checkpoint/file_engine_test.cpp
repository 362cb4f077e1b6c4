// Both file engines against the same files and the same faults.
#include "io/file_engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/engines.h"
#include "io/failpoints.h"
#include "tests/checkpoint/state.h"

using namespace trainer;

namespace {

constexpr size_t kBlock = 4096;

struct AlignedBytes {
  explicit AlignedBytes(size_t n) : data(static_cast<std::byte*>(std::aligned_alloc(kBlock, n)), &std::free), size(n) {}
  std::unique_ptr<std::byte, void (*)(void*)> data;
  size_t size;
};

struct TemporaryFile {
  TemporaryFile() : fd(mkstemp(path)) { REQUIRE(fd >= 0); }
  ~TemporaryFile() {
    close(fd);
    unlink(path);
  }
  char path[32] = "file_engine_XXXXXX";
  int fd;
};

std::vector<std::unique_ptr<FileEngine>> both_engines(int depth) {
  std::vector<std::unique_ptr<FileEngine>> all;
  all.push_back(make_thread_engine(depth));
  std::string why;
  if (auto uring = make_uring_engine(depth, why)) all.push_back(std::move(uring));
  else WARN(why);
  return all;
}

void fill(AlignedBytes& bytes, unsigned seed) {
  for (size_t i = 0; i < bytes.size; ++i) bytes.data.get()[i] = std::byte((i * 2654435761u + seed) >> 7);
}

Completion one(FileEngine& engine, const Transfer& t) {
  engine.submit(t, 7);
  const Completion c = engine.wait();
  CHECK(c.tag == 7);
  return c;
}

}  // namespace

TEST_CASE("many transfers in flight arrive whole, each with its tag") {
  constexpr size_t kParts = 37, kPart = 3 * kBlock + 1;
  for (auto& engine : both_engines(5)) {
    INFO(engine->name());
    const TemporaryFile file;
    AlignedBytes out(kParts * kPart / kBlock * kBlock + kBlock), in(out.size);
    fill(out, 1);
    for (const bool write : {true, false}) {
      std::vector<int> seen(kParts);
      size_t submitted = 0, done = 0;
      while (done < kParts) {
        for (; submitted < kParts && submitted - done < 5; ++submitted) {
          std::byte* data = (write ? out : in).data.get() + submitted * kPart;
          engine->submit({file.fd, write, data, kPart, submitted * kPart}, submitted);
        }
        const Completion c = engine->wait();
        REQUIRE(c.error == 0);
        REQUIRE(c.bytes == kPart);
        ++seen[c.tag];
        ++done;
      }
      CHECK(seen == std::vector<int>(kParts, 1));
    }
    CHECK(std::memcmp(out.data.get(), in.data.get(), kParts * kPart) == 0);
  }
}

TEST_CASE("a read past the end of the file is short, without an error") {
  for (auto& engine : both_engines(2)) {
    const TemporaryFile file;
    AlignedBytes bytes(2 * kBlock);
    fill(bytes, 2);
    REQUIRE(one(*engine, {file.fd, true, bytes.data.get(), kBlock + 10, 0}).bytes == kBlock + 10);
    const Completion c = one(*engine, {file.fd, false, bytes.data.get(), 2 * kBlock, 0});
    CHECK(c.error == 0);
    CHECK(c.bytes == kBlock + 10);
    CHECK(one(*engine, {file.fd, false, bytes.data.get(), kBlock, 4 * kBlock}).bytes == 0);
  }
}

TEST_CASE("short results are continued, also where O_DIRECT wants aligned requests") {
  for (const char* asked : {"file_write@n=1:short=1", "file_write@n=1:short=4097", "file_write@n=1:short=8191"}) {
    for (auto& engine : both_engines(2)) {
      INFO(engine->name() << " " << asked);
      const TemporaryFile file;
      const int direct = open(file.path, O_WRONLY | O_DIRECT);
      const int fd = direct >= 0 ? direct : file.fd;
      AlignedBytes out(4 * kBlock), in(4 * kBlock);
      fill(out, 3);
      Completion written;
      {
        // A real O_DIRECT short result is a multiple of the block; the injected one is asked of the page cache.
        const Failpoints failpoints(asked);
        written = one(*engine, {file.fd, true, out.data.get(), out.size, 0});
      }
      CHECK(written.error == 0);
      CHECK(written.bytes == out.size);
      REQUIRE(one(*engine, {fd, true, out.data.get(), out.size, 0}).error == 0);
      const Failpoints failpoints("file_read@n=1:short=100");
      REQUIRE(one(*engine, {file.fd, false, in.data.get(), in.size, 0}).bytes == in.size);
      CHECK(std::memcmp(out.data.get(), in.data.get(), in.size) == 0);
      if (direct >= 0) close(direct);
    }
  }
}

TEST_CASE("errors are final and named, real or injected") {
  for (auto& engine : both_engines(2)) {
    const TemporaryFile file;
    AlignedBytes bytes(kBlock);
    fill(bytes, 4);
    CHECK(one(*engine, {-1, true, bytes.data.get(), kBlock, 0}).error == EBADF);
    const Failpoints failpoints("file_write@n=2:enospc");
    CHECK(one(*engine, {file.fd, true, bytes.data.get(), kBlock, 0}).error == 0);
    CHECK(one(*engine, {file.fd, true, bytes.data.get(), kBlock, 0}).error == ENOSPC);
    CHECK(one(*engine, {file.fd, true, bytes.data.get(), kBlock, 0}).error == 0);
  }
}

TEST_CASE("a failpoint that does not exist, or cannot do what it should, is refused") {
  for (const char* bad :
       {"nowhere:kill", "gc_begin:nan", "gc_begin", "gc_begin:burn", "gc_begin@n=x:kill", "gc_begin@phase=1:kill",
        "load_block:flip", "file_write:short=", "gc_begin:kill;nowhere:kill"}) {
    INFO(bad);
    CHECK_THROWS_AS(set_failpoints(bad), Error);
  }
  const Failpoints failpoints("gradient@step=3,rank=1:nan;load_block:flip=9");
  CHECK_FALSE(failpoint("gradient", {2, 1}).nan);
  CHECK_FALSE(failpoint("gradient", {3, 0}).nan);
  CHECK_FALSE(failpoint("gradient").nan);
  CHECK(failpoint("gradient", {3, 1}).nan);
  CHECK(failpoint("load_block").flip_bit == 9u);
}
