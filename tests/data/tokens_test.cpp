// The .bin/.idx pair: golden bytes, round trips, and a table of broken files, each refused with file and byte offset.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>

#include "tests/data/scratch.h"

using namespace trainer;

namespace {

// Lengths 5, 3, 4 of uint16 in two documents, as Megatron's own builder writes it.
constexpr const char* kMegatronIndex =
    "4d4d494449445800000100000000000000080300000000000000030000000000000005000000030000000400000000000000000000000a0000"
    "000000000010"
    "00000000000000000000000000000002000000000000000300000000000000";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes.push_back(char(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class T>
void put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> tokens(size_t(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("an index made by Megatron is read") {
  const Scratch dir;
  write_file(dir / "m.idx", from_hex(kMegatronIndex));
  write_file(dir / "m.bin", std::string(24, '\1'));
  const TokenFile file(dir / "m");
  REQUIRE(file.tokens() == 12);
  REQUIRE(file.sequences() == 3);
  REQUIRE(file.documents() == 2);
  REQUIRE(std::vector<int64_t>(file.document_begins().begin(), file.document_begins().end()) ==
          std::vector<int64_t>{0, 8, 12});
  REQUIRE(all_tokens(file) == std::vector<int32_t>(12, 257));
  REQUIRE_NOTHROW(verify_tokens(file, 258));
  REQUIRE_THAT(error_of([&] { verify_tokens(file, 257); }), Catch::Contains("m.bin at byte 0: token id 257"));
}

TEST_CASE("the writer's bytes are Megatron's") {
  const Scratch dir;
  write_tokens(dir / "w", {{1, 2, 3, 4, 5}, {6, 7, 8}, {9, 10, 11, 12}}, 100);
  // One document per sequence, so the index has four document entries: 0, 1, 2, 3.
  std::string wanted = from_hex(kMegatronIndex).substr(0, 70);
  put<uint64_t>(wanted, 26, 4);
  wanted.resize(34 + 12 * 3 + 8 * 4);
  for (int64_t d = 0; d < 4; ++d) put(wanted, 70 + size_t(d) * 8, d);
  REQUIRE(read_file(dir / "w.idx") == wanted);
  REQUIRE(read_file(dir / "w.bin") == from_hex("0100020003000400050006000700080009000a000b000c00"));
}

TEST_CASE("tokens come back, in both widths, with empty documents among them") {
  for (const int64_t vocab : {100, 65499, 65500, 200000}) {
    const Scratch dir;
    const std::vector<std::vector<int32_t>> documents{{0, int32_t(vocab - 1)}, {}, {1, 2, 3}, {}};
    write_tokens(dir / "t", documents, vocab);
    const TokenFile file(dir / "t");
    REQUIRE(file.type() == (vocab < 65500 ? TokenType::uint16 : TokenType::int32));
    REQUIRE(file.documents() == 4);
    REQUIRE(all_tokens(file) == std::vector<int32_t>{0, int32_t(vocab - 1), 1, 2, 3});
    REQUIRE_NOTHROW(verify_tokens(file, 0));
  }
}

TEST_CASE("a broken index or a .bin of the wrong size is refused with file and byte offset") {
  struct Damage {
    std::string name, wanted;
    std::function<void(std::string& idx, std::string& bin)> apply;
  };
  const auto cut = [](size_t bytes) { return [bytes](std::string& idx, std::string&) { idx.resize(bytes); }; };
  const auto set = [](size_t offset, auto value) {
    return [=](std::string& idx, std::string&) { put(idx, offset, value); };
  };
  const std::vector<Damage> damages{
      {"empty index", "idx at byte 0: the file ends", cut(0)},
      {"cut in the magic", "idx at byte 5", cut(5)},
      {"cut in the version", "idx at byte 12", cut(12)},
      {"cut before the type", "idx at byte 17", cut(17)},
      {"cut in the sequence count", "idx at byte 20", cut(20)},
      {"cut in the document count", "idx at byte 33", cut(33)},
      {"cut before the arrays", "idx at byte 18: 3 sequences cannot be", cut(34)},
      {"cut in the lengths", "idx at byte 18", cut(40)},
      {"cut in the pointers", "idx at byte 18", cut(60)},
      {"cut in the documents", "idx at byte 93", cut(93)},
      {"bytes too many", "idx at byte 94", [](std::string& idx, std::string&) { idx += "12"; }},
      {"wrong magic", "idx at byte 0: not the index", set(0, 'X')},
      {"wrong version", "idx at byte 9: version 2", set(9, uint64_t{2})},
      {"type float", "idx at byte 17: token type 7", set(17, uint8_t{7})},
      {"type unknown", "idx at byte 17: token type 0", set(17, uint8_t{0})},
      {"type of the other width", "idx at byte 54: sequence 1 begins at byte 10", set(17, uint8_t{4})},
      {"2^63 sequences", "idx at byte 18", set(18, uint64_t{1} << 63)},
      {"all sequences", "idx at byte 18", set(18, ~uint64_t{0})},
      {"one sequence more", "idx at byte", set(18, uint64_t{4})},
      {"no documents", "idx at byte 26: 0 document entries", set(26, uint64_t{0})},
      {"2^61 documents", "idx at byte 26", set(26, uint64_t{1} << 61)},
      {"negative length", "idx at byte 38: sequence 1 has length -3", set(38, int32_t{-3})},
      {"lying length", "idx at byte 54: sequence 1 begins at byte 10", set(34, int32_t{6})},
      {"lying last length", "m.bin at byte 24: the index wants 26 bytes", set(42, int32_t{5})},
      {"lying pointer", "idx at byte 46: sequence 0 begins at byte 2", set(46, int64_t{2})},
      {"negative pointer", "idx at byte 62: sequence 2", set(62, int64_t{-16})},
      {"first document not 0", "idx at byte 70: document 0 begins at sequence 1", set(70, int64_t{1})},
      {"falling documents", "idx at byte 86: document 2 begins at sequence 1", set(86, int64_t{1})},
      {"document behind the end", "idx at byte 78: document 1 begins at sequence 9", set(78, int64_t{9})},
      {"documents end early", "idx at byte 86: the last document ends at sequence 2", set(86, int64_t{2})},
      {"short bin", "m.bin at byte 22", [](std::string&, std::string& bin) { bin.resize(22); }},
      {"long bin", "m.bin at byte 24", [](std::string&, std::string& bin) { bin += "xx"; }},
      {"empty bin", "m.bin at byte 0", [](std::string&, std::string& bin) { bin.clear(); }},
      {"an image", "idx at byte 94: sequence 0 is not text",
       [](std::string& idx, std::string&) { idx += std::string("\1\0\0", 3); }},
  };
  const Scratch dir;
  for (const Damage& damage : damages) {
    std::string idx = from_hex(kMegatronIndex), bin(24, '\0');
    damage.apply(idx, bin);
    write_file(dir / "m.idx", idx);
    write_file(dir / "m.bin", bin);
    INFO(damage.name);
    CHECK_THAT(error_of([&] { TokenFile(dir / "m"); }), Catch::Contains(damage.wanted));
  }
}

TEST_CASE("what is no file is refused: nothing there, a folder") {
  const Scratch dir;
  REQUIRE_THAT(error_of([&] { TokenFile(dir / "none"); }), Catch::Contains("none.bin: cannot be opened"));
  std::filesystem::create_directory(dir / "d.bin");
  REQUIRE_THAT(error_of([&] { TokenFile(dir / "d"); }), Catch::Contains("not a regular file"));
}

TEST_CASE("bad ids, changed bytes and a foreign manifest are found") {
  const Scratch dir;
  write_tokens(dir / "t", {{1, 2, 3}, {70000, 4}}, 70001);
  const std::string bin = read_file(dir / "t.bin"), json = read_file(dir / "t.json");
  const auto damage = [&](size_t offset, int32_t id) {
    std::string bytes = bin;
    put(bytes, offset, id);
    write_file(dir / "t.bin", bytes);
    return error_of([&] { verify_tokens(TokenFile(dir / "t"), 0); });
  };
  REQUIRE_THAT(damage(12, 70001), Catch::Contains("t.bin at byte 12: token id 70001"));
  REQUIRE_THAT(damage(4, -1), Catch::Contains("t.bin at byte 4: token id -1"));
  REQUIRE_THAT(damage(4, 7), Catch::Contains("t.bin: crc32c"));
  REQUIRE(damage(0, 1).empty());
  write_file(dir / "t.json", json.substr(0, json.size() / 2));
  REQUIRE_THAT(error_of([&] { TokenFile(dir / "t"); }), Catch::Contains("t.json: not a manifest"));
  write_tokens(dir / "other", {{1}}, 70001);
  write_file(dir / "t.json", read_file(dir / "other.json"));
  REQUIRE_THAT(error_of([&] { TokenFile(dir / "t"); }), Catch::Contains("not packed together"));
}

TEST_CASE("a writer that does not finish leaves nothing behind, and refuses ids outside its vocabulary") {
  const Scratch dir;
  REQUIRE_THAT(error_of([&] { write_tokens(dir / "t", {{1, 2}, {3, 10}}, 10); }), Catch::Contains("token id 10"));
  REQUIRE(std::filesystem::is_empty(dir / ""));
}
