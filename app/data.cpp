#include "app/data.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/base/error.h"
#include "io/tokens.h"

namespace trainer {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Calls `take(document)` for all files; what it finds wrong is said with file and offset.
template <class Take>
void each_document(const PackOptions& options, Take take) {
  for (const std::string& path : options.files) {
    for_each_document(path, options.documents, [&](std::string_view text, uint64_t offset) {
      try {
        take(text);
      } catch (const Error& e) {
        if (e.code() != Exit::data) throw;
        fail(Exit::data, "{}, document at byte {}: {}", path, offset, e.what());
      }
    });
  }
}

// The tokenizer, and what the manifest says of it. `chars` is made from the text itself.
std::unique_ptr<Tokenizer> tokenizer_for(const PackOptions& options, TokenManifest& manifest) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.tokenizer == "chars") {
    CharacterSet set;
    each_document(options, [&](std::string_view text) { set.add(text); });
    manifest.characters = set.characters();
    check(!manifest.characters.empty(), Exit::data, "{}: no text in {} files", options.files.front(),
          options.files.size());
    tokenizer = make_character_tokenizer(manifest.characters);
  } else {
    tokenizer = open_tokenizer(options.tokenizer, nullptr);
  }
  if (tokenizer->kind() == "sentencepiece")
    manifest.tokenizer_file = std::filesystem::path(options.tokenizer).filename();
  manifest.tokenizer = tokenizer->kind();
  manifest.tokenizer_hash = tokenizer->hash();
  return tokenizer;
}

nlohmann::ordered_json describe(const TokenFile& file) {
  nlohmann::ordered_json json{
      {"prefix", file.prefix()},       {"type", file.type() == TokenType::uint16 ? "uint16" : "int32"},
      {"tokens", file.tokens()},       {"documents", file.documents()},
      {"sequences", file.sequences()}, {"bin_bytes", file.bin().size()}};
  if (!file.manifest()) return json;
  const TokenManifest& m = *file.manifest();
  json["vocab_size"] = m.vocab_size;
  json["tokenizer"] = m.tokenizer;
  json["tokenizer_hash"] = m.tokenizer_hash;
  if (!m.tokenizer_file.empty()) json["tokenizer_file"] = m.tokenizer_file;
  if (!m.characters.empty()) json["characters"] = m.characters;
  return json;
}

void print(const nlohmann::ordered_json& json, bool as_json, std::ostream& out) {
  if (as_json) {
    out << json.dump() << "\n";
    return;
  }
  for (const auto& [key, value] : json.items()) out << fmt::format("{:<15} {}\n", key, value.dump());
}

const std::map<std::string, DocumentRule> kDocumentRules{
    {"file", DocumentRule::file}, {"blank-line", DocumentRule::blank_line}, {"line", DocumentRule::line}};
const std::map<std::string, PieceKind> kPieceKinds{{"bpe", PieceKind::bpe}, {"unigram", PieceKind::unigram}};

}  // namespace

void pack_text(const PackOptions& options, std::ostream& out) {
  const auto begin = std::chrono::steady_clock::now();
  TokenManifest manifest;
  const auto tokenizer = tokenizer_for(options, manifest);
  TokenWriter writer(options.out, tokenizer->vocab_size());
  uint64_t bytes = 0;
  each_document(options, [&](std::string_view text) {
    std::vector<int32_t> tokens = tokenizer->encode(text);
    if (const auto end = tokenizer->document_end()) tokens.push_back(*end);
    writer.add_document(tokens);
    bytes += text.size();
  });
  check(bytes > 0, Exit::data, "{}: no text in {} files", options.files.front(), options.files.size());
  manifest = writer.finish(manifest);
  const double seconds = seconds_since(begin);
  out << fmt::format("{}.bin: {} tokens of {} in {} documents, {:.2f} bytes each; {:.1f} MB in {:.2f} s, {:.1f} MB/s\n",
                     options.out, manifest.tokens, manifest.vocab_size, manifest.documents,
                     double(bytes) / double(manifest.tokens), 1e-6 * double(bytes), seconds,
                     1e-6 * double(bytes) / seconds);
}

void inspect_data(const ShowOptions& options, std::ostream& out) {
  print(describe(TokenFile(options.prefix)), options.json, out);
}

void verify_data(const ShowOptions& options, std::ostream& out) {
  const TokenFile file(options.prefix);
  verify_tokens(file, options.vocab_size);
  auto json = describe(file);
  json["verified"] = file.manifest() ? "index, ids, crc32c" : "index, ids (no manifest, so no crc32c)";
  print(json, options.json, out);
}

void make_vocabulary(const TokenizerTraining& training, std::ostream& out) {
  const auto begin = std::chrono::steady_clock::now();
  train_sentencepiece(training);
  const auto tokenizer = load_sentencepiece(training.out);
  out << fmt::format("{}: {} pieces, {}, in {:.1f} s\n", training.out, tokenizer->vocab_size(), tokenizer->hash(),
                     seconds_since(begin));
}

void add_data_commands(CLI::App& app, std::ostream& out) {
  CLI::App* data = app.add_subcommand("data", "Turn text into tokens, look into them, check them");
  data->require_subcommand(1);

  const auto pack_options = std::make_shared<PackOptions>();
  CLI::App* pack = data->add_subcommand("pack", "Text files to PREFIX.bin, PREFIX.idx and PREFIX.json");
  pack->add_option("--tokenizer", pack_options->tokenizer, "bytes, chars, or a SentencePiece .model")->required();
  pack->add_option("--out", pack_options->out, "prefix of the files to write")->required();
  pack->add_option("--documents", pack_options->documents,
                   "what a document is: file, blank-line or line (default: file)")
      ->transform(CLI::CheckedTransformer(kDocumentRules));
  pack->add_option("files", pack_options->files, "text, UTF-8")->required();
  pack->callback([pack_options, &out] { pack_text(*pack_options, out); });

  const auto show_command = [&](const char* name, const char* text, void (*run)(const ShowOptions&, std::ostream&)) {
    const auto options = std::make_shared<ShowOptions>();
    CLI::App* command = data->add_subcommand(name, text);
    command->add_option("prefix", options->prefix, "path without .bin")->required();
    command->add_flag("--json", options->json, "print one JSON object");
    command->callback([options, run, &out] { run(*options, out); });
    return std::pair(command, options);
  };
  show_command("inspect", "What packed tokens are", inspect_data);
  const auto [verify, verify_options] = show_command("verify", "Check index, every id, and the checksums", verify_data);
  verify->add_option("--vocab", verify_options->vocab_size, "vocabulary to check ids against; default: the manifest's");

  const auto training = std::make_shared<TokenizerTraining>();
  CLI::App* tokenizer = data->add_subcommand("tokenizer", "Learn a SentencePiece vocabulary from text files");
  tokenizer->add_option("--kind", training->kind, "bpe or unigram (default: bpe)")
      ->transform(CLI::CheckedTransformer(kPieceKinds));
  tokenizer->add_option("--vocab", training->vocab_size, "pieces (default: 4096)")
      ->check(CLI::Range(int64_t{260}, int64_t{1} << 20));
  tokenizer->add_option("--out", training->out, "the .model to write")->required();
  tokenizer->add_option("files", training->files, "text, UTF-8")->required();
  tokenizer->callback([training, &out] { make_vocabulary(*training, out); });
}

}  // namespace trainer
