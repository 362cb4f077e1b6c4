#include "app/vocabulary.h"

#include "core/base/error.h"
#include "io/token_manifest.h"

namespace trainer {
namespace {
constexpr std::string_view kCharacters = "chars:";
}

std::string tokenizer_description(const DataSpec& data) {
  if (data.tokenizer != "chars") return data.tokenizer;
  const auto manifest = read_manifest(data.train.front().path);
  check(manifest.has_value(), Exit::data,
        "{}.json: data.tokenizer is chars, whose characters stand there, and there is no such file",
        data.train.front().path);
  return std::string(kCharacters) + manifest->characters;
}

std::unique_ptr<Tokenizer> open_described_tokenizer(const std::string& description) {
  if (description.starts_with(kCharacters))
    return make_character_tokenizer(std::string_view(description).substr(kCharacters.size()));
  check(description != "none" && !description.empty(), Exit::data,
        "the checkpoint's tokens were given without a tokenizer (data.tokenizer: none), so text cannot be encoded");
  return open_tokenizer(description, nullptr);
}

}  // namespace trainer
