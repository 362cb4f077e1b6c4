// Tokenizers, documents, and `trainer data pack`.
#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/data.h"
#include "io/utf8.h"
#include "tests/data/scratch.h"

using namespace trainer;

namespace {

const std::string kShakespeare = TESTS_DIR "/data/tinyshakespeare.txt";
const std::string kMixed = "  Grüße,\n\n\tZürich 2024!  \xe2\x98\x83 \xf0\x9f\x98\x80\n x  y\n";

// The first lines of the corpus: enough to learn a small vocabulary from.
std::string some_text(const Scratch& dir) {
  return write_file(dir / "some.txt", read_file(kShakespeare).substr(0, 100000));
}

std::string learn(const Scratch& dir, PieceKind kind, const std::string& name) {
  train_sentencepiece({.kind = kind, .vocab_size = 600, .files = {some_text(dir)}, .out = dir / name});
  return dir / name;
}

// Packs, opens, verifies, and decodes all tokens.
std::string packed_text(const PackOptions& options) {
  std::ostringstream out;
  pack_text(options, out);
  const TokenFile file(options.out);
  verify_tokens(file, 0);
  std::vector<int32_t> tokens(size_t(file.tokens()));
  file.read(0, tokens);
  return open_tokenizer(options.tokenizer, &*file.manifest())->decode(tokens);
}

std::vector<std::pair<std::string, uint64_t>> documents_of(const std::string& path, DocumentRule rule) {
  std::vector<std::pair<std::string, uint64_t>> documents;
  for_each_document(path, rule, [&](std::string_view text, uint64_t offset) { documents.emplace_back(text, offset); });
  return documents;
}

}  // namespace

TEST_CASE("UTF-8 comes back, and what is not UTF-8 is refused at its byte") {
  for (const uint32_t c : {0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    append_utf8(text, c);
    size_t at = 0;
    REQUIRE(next_code_point(text, at) == c);
    REQUIRE(at == text.size());
  }
  for (const char* bad :
       {"\x80", "\xff", "\xc0\x80", "\xc3", "\xe2\x98", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    CharacterSet set;
    REQUIRE_THAT(error_of([&] { set.add(std::string("ab") + bad); }), Catch::Contains("byte 2 of the text"));
  }
}

TEST_CASE("bytes and characters come back from their ids") {
  const auto bytes = make_byte_tokenizer();
  REQUIRE(bytes->vocab_size() == 257);
  REQUIRE(bytes->document_end() == 256);
  REQUIRE(bytes->encode("a\xff") == std::vector<int32_t>{97, 255});
  REQUIRE(bytes->decode(std::vector<int32_t>{97, 256, 255}) == "a\xff");
  REQUIRE_THROWS_AS(bytes->decode(std::vector<int32_t>{257}), Error);

  CharacterSet set;
  set.add(kMixed);
  const auto chars = make_character_tokenizer(set.characters());
  REQUIRE(!chars->document_end());
  REQUIRE(chars->decode(chars->encode(kMixed)) == kMixed);
  REQUIRE(chars->encode("\t\n ") == std::vector<int32_t>{0, 1, 2});
  REQUIRE_THAT(error_of([&] { chars->encode("xQ"); }), Catch::Contains("byte 1") && Catch::Contains("`Q` (U+0051)"));
}

TEST_CASE("a learnt SentencePiece vocabulary spells any text, and learning twice gives the same file") {
  const Scratch dir;
  for (const PieceKind kind : {PieceKind::bpe, PieceKind::unigram}) {
    const auto tokenizer = load_sentencepiece(learn(dir, kind, "a.model"));
    REQUIRE(read_file(learn(dir, kind, "b.model")) == read_file(dir / "a.model"));
    REQUIRE(tokenizer->vocab_size() == 600);
    REQUIRE(tokenizer->document_end().has_value());
    for (const std::string& text :
         {kMixed, std::string("\n"), std::string(""), read_file(kShakespeare).substr(200000, 5000)}) {
      const auto tokens = tokenizer->encode(text);
      REQUIRE(tokenizer->decode(tokens) == text);
      REQUIRE(tokens.size() <= text.size());
    }
    REQUIRE_THROWS_AS(tokenizer->decode(std::vector<int32_t>{600}), Error);
  }
  write_file(dir / "bad.model", "no model");
  REQUIRE_THAT(error_of([&] { load_sentencepiece(dir / "bad.model"); }), Catch::Contains("not a SentencePiece model"));
  const auto impossible = [&] {
    train_sentencepiece({.vocab_size = 300000, .files = {some_text(dir)}, .out = dir / "c.model"});
  };
  REQUIRE_THAT(error_of(impossible), Catch::Contains("vocabulary of 300000"));
}

TEST_CASE("documents are files, lines, or what stands between blank lines") {
  const Scratch dir;
  const std::string text = "\n\none\ntwo\n\n\nthree\n\nfour\n";
  const std::string path = write_file(dir / "t.txt", text);
  using Documents = std::vector<std::pair<std::string, uint64_t>>;
  REQUIRE(documents_of(path, DocumentRule::file) == Documents{{text, 0}});
  REQUIRE(documents_of(path, DocumentRule::line) == Documents{{"one", 2}, {"two", 6}, {"three", 12}, {"four", 19}});
  REQUIRE(documents_of(path, DocumentRule::blank_line) == Documents{{"one\ntwo", 2}, {"three", 12}, {"four", 19}});
}

TEST_CASE("where a file is read in pieces, documents across their borders stay whole") {
  const Scratch dir;
  for (const size_t shift : {0, 1, 2, 3}) {  // moves the separators over the border at 1 MiB
    std::string text((size_t{1} << 20) - shift, 'x');
    text += "\n\n\nsecond\n\nthird";
    const auto documents = documents_of(write_file(dir / "big.txt", text), DocumentRule::blank_line);
    REQUIRE(documents.size() == 3);
    REQUIRE(documents[0].first.size() == (size_t{1} << 20) - shift);
    REQUIRE(documents[1].first == "second");
    REQUIRE(text.substr(documents[1].second, 6) == "second");
    REQUIRE(documents[2].first == "third");
  }
}

TEST_CASE("packed text comes back with every tokenizer") {
  const Scratch dir;
  const std::string a = write_file(dir / "a.txt", kMixed), b = write_file(dir / "b.txt", "second\n");
  for (const std::string& tokenizer :
       {std::string("bytes"), std::string("chars"), learn(dir, PieceKind::bpe, "t.model")})
    REQUIRE(packed_text({.tokenizer = tokenizer, .out = dir / "p", .files = {a, b}}) == kMixed + "second\n");
}

TEST_CASE("chars on tinyshakespeare: the published counts") {
  const Scratch dir;
  std::ostringstream out;
  pack_text({.tokenizer = "chars", .out = dir / "s", .files = {kShakespeare}}, out);
  const TokenFile file(dir / "s");
  REQUIRE(file.tokens() == 1115394);
  REQUIRE(file.manifest()->vocab_size == 65);
  std::vector<int32_t> first(5);
  file.read(0, first);
  REQUIRE(first == std::vector<int32_t>{18, 47, 56, 57, 58});  // "First", as nanoGPT numbers it
}

TEST_CASE("the data commands pack, show and verify") {
  const Scratch dir;
  write_file(dir / "t.txt", "one\ntwo\n");
  std::ostringstream out;
  const auto run = [&](const std::string& arguments) {
    CLI::App app;
    add_data_commands(app, out);
    out.str("");
    app.parse(arguments);
    return out.str();
  };
  run("data pack --tokenizer bytes --documents line --out " + dir / "p" + " " + dir / "t.txt");
  const auto shown = nlohmann::json::parse(run("data inspect --json " + dir / "p"));
  REQUIRE(shown.at("tokens") == 8);
  REQUIRE(shown.at("documents") == 2);
  REQUIRE(shown.at("tokenizer") == "bytes");
  REQUIRE_THAT(run("data verify " + dir / "p"), Catch::Contains("crc32c"));
  std::string bin = read_file(dir / "p.bin");
  bin[0] ^= 1;
  write_file(dir / "p.bin", bin);
  REQUIRE_THAT(error_of([&] { run("data verify " + dir / "p"); }), Catch::Contains("p.bin: crc32c"));
  REQUIRE_THROWS_AS(run("data pack --tokenizer bytes"), CLI::ParseError);
  write_file(dir / "bad.txt", "ok\nb\xff\n");
  const auto pack_bad = [&] {
    run("data pack --tokenizer chars --documents line --out " + dir / "q" + " " + dir / "bad.txt");
  };
  REQUIRE_THAT(error_of(pack_bad), Catch::Contains("bad.txt, document at byte 3: byte 1 of the text (0xff)"));
}
