// PREFIX.json beside PREFIX.bin and PREFIX.idx: which tokenizer made the tokens, how many there are, and what the files
// hash to.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trainer {

struct TokenManifest {
  std::string tokenizer;       // bytes | chars | sentencepiece | none (tokens were given)
  std::string tokenizer_hash;  // Tokenizer::hash()
  std::string tokenizer_file;  // sentencepiece: the name of its .model, without folders
  std::string characters;      // chars: all characters in the order of their ids, UTF-8
  int64_t vocab_size = 0;
  int64_t tokens = 0, documents = 0;
  uint32_t bin_crc32c = 0, idx_crc32c = 0;
};

// nullopt where PREFIX.json does not exist. Error(data) where it is not what write_manifest writes.
std::optional<TokenManifest> read_manifest(const std::string& prefix);
void write_manifest(const std::string& prefix, const TokenManifest&);

}  // namespace trainer
