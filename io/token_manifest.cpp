#include "io/token_manifest.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "io/data_file.h"

namespace trainer {
namespace {

constexpr const char* kFormat = "trainer-tokens-1";
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

uint32_t parse_crc(const std::string& path, const std::string& text) {
  uint32_t crc = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  check(error == std::errc() && end == text.data() + text.size() && text.size() == 8, Exit::data,
        "{}: a crc32c is 8 hexadecimal digits, found `{}`", path, text);
  return crc;
}

TokenManifest parse(const std::string& path, const nlohmann::json& json) {
  const std::string format = json.at("format");
  check(format == kFormat, Exit::data, "{}: format `{}`, this program reads `{}`", path, format, kFormat);
  const auto& tokenizer = json.at("tokenizer");
  TokenManifest m;
  m.tokenizer = tokenizer.at("kind");
  m.tokenizer_hash = tokenizer.at("hash");
  m.tokenizer_file = tokenizer.value("file", "");
  m.characters = tokenizer.value("characters", "");
  m.vocab_size = json.at("vocab_size");
  m.tokens = json.at("tokens");
  m.documents = json.at("documents");
  m.bin_crc32c = parse_crc(path, json.at("bin_crc32c"));
  m.idx_crc32c = parse_crc(path, json.at("idx_crc32c"));
  return m;
}

}  // namespace

std::optional<TokenManifest> read_manifest(const std::string& prefix) {
  const std::string path = prefix + ".json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const std::string text = read_whole(path, kMaxBytes);
  try {
    return parse(path, nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& e) {
    fail(Exit::data, "{}: not a manifest of tokens ({}); pack the text again", path, e.what());
  }
}

void write_manifest(const std::string& prefix, const TokenManifest& m) {
  nlohmann::ordered_json tokenizer{{"kind", m.tokenizer}, {"hash", m.tokenizer_hash}};
  if (!m.tokenizer_file.empty()) tokenizer["file"] = m.tokenizer_file;
  if (!m.characters.empty()) tokenizer["characters"] = m.characters;
  const nlohmann::ordered_json json{{"format", kFormat},
                                    {"tokenizer", tokenizer},
                                    {"vocab_size", m.vocab_size},
                                    {"tokens", m.tokens},
                                    {"documents", m.documents},
                                    {"bin_crc32c", fmt::format("{:08x}", m.bin_crc32c)},
                                    {"idx_crc32c", fmt::format("{:08x}", m.idx_crc32c)}};
  OutputFile file(prefix + ".json");
  file.append(json.dump(2) + "\n");
  file.commit();
}

}  // namespace trainer
