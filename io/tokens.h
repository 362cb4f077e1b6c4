// Token files in the layout of Megatron's indexed dataset, version 1 (megatron/core/datasets/indexed_dataset.py):
// PREFIX.bin holds the tokens back to back, PREFIX.idx where sequences and documents begin. A writer, and a reader that
// believes nothing.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/data_file.h"
#include "io/token_manifest.h"

namespace trainer {

enum class TokenType : uint8_t { int32 = 4, uint16 = 8 };  // the codes of the .idx
constexpr size_t size_of(TokenType type) { return type == TokenType::uint16 ? 2 : 4; }
constexpr TokenType token_type_for(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::uint16 : TokenType::int32;
}
// Widens tokens as they lie in a file.
void decode_tokens(TokenType, const std::byte* from, std::span<int32_t> tokens);

// Opens both files and checks everything but the tokens themselves: sizes, counts, lengths, pointers, documents, the
// manifest's counts. Throws Error(data) with file and byte offset. Keeps 8 bytes per document.
class TokenFile {
 public:
  explicit TokenFile(const std::string& prefix);
  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  int64_t tokens() const { return int64_t(bin_.size() / size_of(type_)); }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return int64_t(document_begins_.size()) - 1; }
  // First token of each document, then the number of tokens: documents() + 1 values, never falling.
  std::span<const int64_t> document_begins() const { return document_begins_; }
  const std::optional<TokenManifest>& manifest() const { return manifest_; }
  const DataFile& bin() const { return bin_; }
  const DataFile& idx() const { return idx_; }
  uint64_t offset_of(int64_t token) const { return uint64_t(token) * size_of(type_); }
  // Tokens [first, first + tokens.size()). REQUIRES: within tokens()
  void read(int64_t first, std::span<int32_t> tokens) const;
  // Error(data) with the byte offset of the first id outside [0, vocab_size); `first` is where tokens[0] stands in the
  // file.
  void check_ids(int64_t first, std::span<const int32_t> tokens, int64_t vocab_size) const;

 private:
  void read_index();
  std::string prefix_;
  DataFile bin_, idx_;
  TokenType type_ = TokenType::uint16;
  int64_t sequences_ = 0;
  std::vector<int64_t> document_begins_;
  std::optional<TokenManifest> manifest_;
};

// What the opening cannot see: every id below the vocabulary (the manifest's, or `vocab_size` where that is not 0),
// both CRCs.
void verify_tokens(const TokenFile&, int64_t vocab_size);

// Writes a pair and its manifest, one sequence per document. Nothing appears under the final names before `finish`.
class TokenWriter {
 public:
  TokenWriter(std::string prefix, int64_t vocab_size);
  void add_document(std::span<const int32_t> tokens);
  // Fills in counts and CRCs of `manifest`, writes it last, and returns it.
  TokenManifest finish(TokenManifest manifest);

 private:
  std::string prefix_;
  int64_t vocab_size_;
  TokenType type_;
  OutputFile bin_, idx_;
  std::vector<int32_t> lengths_;
  std::vector<uint16_t> narrow_;
};

}  // namespace trainer
