#include "io/tokenizer.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/token_manifest.h"
#include "io/utf8.h"

namespace trainer {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view kind() const override { return "bytes"; }
  int64_t vocab_size() const override { return kEnd + 1; }
  std::optional<int32_t> document_end() const override { return kEnd; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens(text.size());
    std::transform(text.begin(), text.end(), tokens.begin(), [](char c) { return uint8_t(c); });
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t id : tokens) {
      check(id >= 0 && id <= kEnd, Exit::data, "token id {} is outside the bytes' vocabulary of {}", id, vocab_size());
      if (id != kEnd) text.push_back(char(id));
    }
    return text;
  }
  std::string hash() const override { return "bytes"; }

 private:
  static constexpr int32_t kEnd = 256;
};

class CharacterTokenizer final : public Tokenizer {
 public:
  explicit CharacterTokenizer(std::string_view characters) {
    for (size_t at = 0; at < characters.size();) code_points_.push_back(next_code_point(characters, at));
    const auto rises = std::adjacent_find(code_points_.begin(), code_points_.end(), std::greater_equal<>());
    check(!code_points_.empty() && rises == code_points_.end(), Exit::data,
          "the characters of a `chars` tokenizer have to be in ascending order, each once, at least one");
    ids_.assign(code_points_.back() + 1, -1);
    for (size_t id = 0; id < code_points_.size(); ++id) ids_[code_points_[id]] = int32_t(id);
    hash_ = fmt::format("fnv1a64:{:016x}", hash_text(characters));
  }
  std::string_view kind() const override { return "chars"; }
  int64_t vocab_size() const override { return int64_t(code_points_.size()); }
  std::optional<int32_t> document_end() const override { return std::nullopt; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const uint32_t c = next_code_point(text, at);
      check(c < ids_.size() && ids_[c] >= 0, Exit::data,
            "byte {} of the text: `{}` (U+{:04X}) is not among the {} characters known", begin,
            text.substr(begin, at - begin), c, code_points_.size());
      tokens.push_back(ids_[c]);
    }
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t id : tokens) {
      check(id >= 0 && id < vocab_size(), Exit::data, "token id {} is outside the vocabulary of {} characters", id,
            vocab_size());
      append_utf8(text, code_points_[size_t(id)]);
    }
    return text;
  }
  std::string hash() const override { return hash_; }

 private:
  std::vector<uint32_t> code_points_;  // by id
  std::vector<int32_t> ids_;           // by code point; -1: unknown
  std::string hash_;
};

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind_or_path, const TokenManifest* manifest) {
  if (kind_or_path == "bytes") return make_byte_tokenizer();
  if (kind_or_path == "chars") {
    check(
        manifest && !manifest->characters.empty(), Exit::data,
        "tokenizer `chars`: its characters stand in the .json beside the tokens, which has none; pack the text again");
    return make_character_tokenizer(manifest->characters);
  }
  check(kind_or_path.ends_with(".model"), Exit::data,
        "tokenizer `{}`: wanted bytes, chars or a SentencePiece .model file (tokenizer.json is not read yet)",
        kind_or_path);
  return load_sentencepiece(kind_or_path);
}

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view characters) {
  return std::make_unique<CharacterTokenizer>(characters);
}

void CharacterSet::add(std::string_view text) {
  seen_.resize(kCodePoints);
  for (size_t at = 0; at < text.size();) seen_[next_code_point(text, at)] = true;
}

std::string CharacterSet::characters() const {
  std::string text;
  for (uint32_t c = 0; c < seen_.size(); ++c)
    if (seen_[c]) append_utf8(text, c);
  return text;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& kind_or_path, const TokenManifest* manifest) {
  auto tokenizer = make_tokenizer(kind_or_path, manifest);
  check(!manifest || manifest->tokenizer_hash == tokenizer->hash(), Exit::data,
        "tokenizer `{}` has hash {}, the tokens were made by `{}` with hash {}; name that one, or pack the text again",
        kind_or_path, tokenizer->hash(), manifest ? manifest->tokenizer : "", manifest ? manifest->tokenizer_hash : "");
  return tokenizer;
}

}  // namespace trainer
