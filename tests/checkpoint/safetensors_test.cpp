// What the strict reader takes and what it refuses: the corpus of the format's own tests and attacks, and ours.
#include "io/safetensors.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "io/safetensors_set.h"
#include "tests/checkpoint/state.h"

using namespace trainer;
namespace fs = std::filesystem;

namespace {

std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_bytes, '\0');
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

// Empty: accepted.
std::string refusal_of(const std::string& bytes) {
  const TemporaryDirectory directory;
  write_file(directory.path + "/x.safetensors", bytes);
  try {
    read_safetensors_header(
        open_beneath(open_directory(directory.path, Exit::checkpoint), "x.safetensors", Exit::checkpoint));
    return "";
  } catch (const Error& e) {
    CHECK(e.code() == Exit::checkpoint);
    CHECK_THAT(e.what(), Catch::Contains("x.safetensors"));
    return e.what();
  }
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, type, shape, offsets);
}
std::string object(const std::string& inner) { return fmt::format("{{{}}}", inner); }
std::string one(const std::string& shape, const std::string& offsets) {
  return object(tensor("test", "I32", shape, offsets));
}

const std::string kGood = one("[2,2]", "[0,16]");

std::string many_on_one_range() {
  std::string inner;
  for (int i = 0; i < 10; ++i)
    inner += fmt::format("{}{}", i ? "," : "", tensor(fmt::format("t{}", i), "I32", "[2,2]", "[0,16]"));
  return object(inner);
}

}  // namespace

TEST_CASE("safetensors files that are legal") {
  const std::string cases[] = {
      file_of(kGood, 16),
      file_of(kGood + "   \t\r\n", 16),
      file_of(fmt::format("  \n{}", kGood), 16),
      file_of("{}", 0),
      file_of("{\"__metadata__\":{\"a\":\"b\"}}", 0),
      file_of(object(fmt::format("{},{}", tensor("b", "F32", "[]", "[8,12]"), tensor("a", "F64", "[1]", "[0,8]"))), 12),
      file_of(object(fmt::format("{},{}", tensor("e", "F32", "[0,5]", "[0,0]"), tensor("a", "U8", "[3]", "[0,3]"))), 3),
      file_of(object(tensor("f", "F4", "[6]", "[0,3]")), 3),
      file_of(kGood + std::string(20'000'000, ' '), 16),
  };
  for (const std::string& bytes : cases) CHECK(refusal_of(bytes) == "");
}

TEST_CASE("safetensors files that are refused, with the reason") {
  const std::string deep = fmt::format("{{\"a\":{}", std::string(100'000, '['));
  const std::string nul = fmt::format("a{}u0000b", '\\');
  const struct {
    std::string bytes, reason;
  } cases[] = {
      {file_of(kGood, 17), "found 17"},
      {file_of(kGood, 14), "found 14"},
      {std::string("\x3c\0\0\0\0\xff\xff\xff", 8) + kGood, "header of at most"},
      {"", "at least 8 bytes"},
      {std::string(8, '\0'), "begins with"},
      {file_of("\xff", 0), "begins with"},
      {file_of("{", 0), "not valid JSON"},
      {file_of("{\"\xff\":1}", 0), "not valid JSON"},
      {file_of(one("[2,2]", "[0,4]"), 4), "wanted 16 bytes"},
      {file_of(one("[2,18446744073709551614]", "[0,16]"), 16), "2^53"},
      {file_of(one("[2,9223372036854775807]", "[0,16]"), 16), "2^53"},
      {file_of(one("[9007199254740992,9007199254740992]", "[0,16]"), 16), "overflows"},
      {file_of(many_on_one_range(), 16), "data_offsets from 16"},
      {file_of(object(fmt::format("{},{}", tensor("a", "U8", "[1]", "[0,1]"), tensor("a", "U8", "[1]", "[1,2]"))), 2),
       "duplicate tensor"},
      {file_of("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0), "duplicate key"},
      {file_of("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0), "duplicate metadata key"},
      {file_of(one("[2,2]", "[-16,0]"), 16), "a negative number"},
      {file_of(one("[2,2]", "[16,0]"), 16), "data_offsets from 0"},
      {file_of(object(fmt::format("{},{}", tensor("a", "U8", "[1]", "[0,1]"), tensor("b", "U8", "[1]", "[2,3]"))), 3),
       "data_offsets from 1"},
      {file_of(one("[2,2]", "[0,9223372036854775808]"), 16), "2^53"},
      {file_of(one("[2,2]", "[0,16.0]"), 16), "16.0"},
      {file_of(one("[2,2]", "[0,1e3]"), 1000), "1e3"},
      {file_of(one("[2,2]", "[-0,16]"), 16), "cannot stand"},
      {file_of(one("[2,2]", "[0,16,16]"), 16), "third"},
      {file_of(one("[2,2]", "[0]"), 16), "two data_offsets"},
      {file_of(one("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", "[0,16]"), 16), "16 dimensions"},
      {file_of(object(tensor("a", "F99", "[1]", "[0,1]")), 1), "F99"},
      {file_of(object(tensor("f", "F4", "[3]", "[0,1]")), 1), "whole number of bytes"},
      {file_of("{\"__metadata__\":{\"a\":1}}", 0), "a number"},
      {file_of("{\"a\":1}", 0), "a number"},
      {file_of("[]", 0), "begins with"},
      {file_of(deep, 0), "an array"},
      {file_of(object(tensor(nul, "U8", "[1]", "[0,1]")), 1), "NUL"},
      {file_of(object(tensor(std::string(1025, 'n'), "U8", "[1]", "[0,1]")), 1), "1025"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is this a safetensors file"},
      {std::string("\xe8\3\0\0\0\0\0\0", 8) + "{}", "header of at most"},
  };
  for (const auto& c : cases) {
    INFO(c.bytes.substr(0, 200));
    CHECK_THAT(refusal_of(c.bytes), Catch::Contains(c.reason));
  }
}

TEST_CASE("a header that is laid out is read back, in the order of the data") {
  std::vector<SafetensorsEntry> entries{{"half", find_stored_type("BF16"), {3}, 0, 0},
                                        {"b", find_stored_type("F32"), {2, 5}, 0, 0},
                                        {"a \"quoted\"", find_stored_type("F32"), {}, 0, 0}};
  const std::string header = lay_out_safetensors(entries, {{"format", "pt"}}, 4096);
  CHECK(header.size() == 4096);
  const TemporaryDirectory directory;
  write_file(directory.path + "/x.safetensors", header + std::string(4 + 40 + 6, 'x'));
  const File folder = open_directory(directory.path, Exit::checkpoint);
  const SafetensorsHeader read = read_safetensors_header(open_beneath(folder, "x.safetensors", Exit::checkpoint));
  REQUIRE(read.tensors.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(read.tensors[i].name == entries[i].name);
    CHECK(read.tensors[i].shape == entries[i].shape);
    CHECK(read.tensors[i].begin == entries[i].begin);
    CHECK(read.tensors[i].end == entries[i].end);
  }
  CHECK(read.tensors[0].name == "a \"quoted\"");
  CHECK(read.metadata.at("format") == "pt");
}

TEST_CASE("an index that leads out of its directory, or lies, is refused") {
  const TemporaryDirectory directory;
  const std::string part = directory.path + "/m.safetensors", index = directory.path + "/" + kSafetensorsIndex;
  write_file(part, file_of(kGood, 16));
  const auto refused = [&](const std::string& map) {
    write_file(index, fmt::format(R"({{"metadata":{{}},"weight_map":{{{}}}}})", map));
    INFO(map);
    CHECK_THROWS_AS(open_safetensors_set(directory.path), Error);
  };
  write_file(index, "{\"weight_map\":{\"test\":\"m.safetensors\"}}");
  CHECK(open_safetensors_set(directory.path).tensors.at("test").entry->bytes() == 16);
  fs::create_symlink(part, directory.path + "/link.safetensors");
  REQUIRE(mkfifo((directory.path + "/pipe.safetensors").c_str(), 0600) == 0);
  refused("\"test\":\"../m.safetensors\"");
  refused(fmt::format(R"("test":"{}")", part));
  refused("\"test\":\"link.safetensors\"");
  refused("\"test\":\"pipe.safetensors\"");
  refused("\"test\":\"missing.safetensors\"");
  refused("\"test\":\".safetensors\"");
  refused("\"test\":7");
  refused("\"other\":\"m.safetensors\"");
  refused("\"test\":\"m.safetensors\",\"other\":\"m.safetensors\"");
  refused("\"test\":\"m.safetensors\",\"test\":\"m.safetensors\"");
  refused("");
  fs::copy_file(part, directory.path + "/twice.safetensors");
  refused("\"test\":\"m.safetensors\",\"x\":\"twice.safetensors\"");
}
