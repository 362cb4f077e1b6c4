// Text to token ids and back.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

struct TokenManifest;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view kind() const = 0;  // bytes | chars | sentencepiece
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> document_end() const = 0;  // what `pack` appends to each document
  // Error(data) with the byte where the text cannot be encoded.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Ids that stand for no text (a document's end) give none. Error(data) for ids outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  virtual std::string hash() const = 0;  // of all that decides what ids mean
};

// Ids 0 to 255 are bytes, 256 ends a document.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// Ids are the ranks of the characters (Unicode code points) in ascending order; nothing ends a document.
// `characters` is UTF-8 without repetitions; CharacterSet gathers it.
std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view characters);

class CharacterSet {
 public:
  void add(std::string_view text);  // Error(data) with the byte that is not UTF-8
  std::string characters() const;   // in ascending order

 private:
  std::vector<bool> seen_;  // by code point
};

// A SentencePiece model; its end-of-sentence piece, if it has one, ends a document.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path);

// `bytes`, `chars` (needs the manifest of the tokens, which holds the characters) or a .model file.
// With a manifest, Error(data) where its tokens were made by another tokenizer.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& kind_or_path, const TokenManifest* manifest);

enum class PieceKind : uint8_t { bpe, unigram };
struct TokenizerTraining {
  PieceKind kind = PieceKind::bpe;
  int64_t vocab_size = 4096;
  std::vector<std::string> files;
  std::string out;  // the .model
};
// The same files give the same model. Nothing is normalised or dropped, so decode(encode(text)) == text for any UTF-8
// text; characters too rare for the vocabulary are spelled as bytes.
void train_sentencepiece(const TokenizerTraining&);

}  // namespace trainer
