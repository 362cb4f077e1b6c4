#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/data_file.h"
#include "io/documents.h"
#include "io/tokenizer.h"

namespace trainer {
namespace {

namespace spm = sentencepiece;
constexpr uint64_t kMaxModelBytes = uint64_t{256} << 20;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) {
    const std::string model = read_whole(path, kMaxModelBytes);
    const auto status = processor_.LoadFromSerializedProto(model);
    check(status.ok(), Exit::data, "{}: not a SentencePiece model ({})", path, status.ToString());
    hash_ = fmt::format("fnv1a64:{:016x}", hash_text(model));
    encode_part("\n", line_end_);
    cuts_at_lines_ = lines_are_apart();
  }
  std::string_view kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<int32_t> document_end() const override {
    return processor_.eos_id() >= 0 ? std::optional(processor_.eos_id()) : std::nullopt;
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    if (!cuts_at_lines_) {
      encode_part(text, tokens);
      return tokens;
    }
    while (!text.empty()) {  // line by line is several times faster for a document of megabytes
      const size_t end = std::min(text.find('\n'), text.size());
      encode_part(text.substr(0, end), tokens);
      if (end < text.size()) tokens.insert(tokens.end(), line_end_.begin(), line_end_.end());
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    for (const int32_t id : tokens)
      check(id >= 0 && id < vocab_size(), Exit::data, "token id {} is outside the vocabulary of {} pieces", id,
            vocab_size());
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
    check(status.ok(), Exit::data, "SentencePiece cannot decode {} tokens: {}", tokens.size(), status.ToString());
    return text;
  }
  std::string hash() const override { return hash_; }

 private:
  void encode_part(std::string_view text, std::vector<int32_t>& tokens) const {
    std::vector<int> part;
    const auto status = processor_.Encode(text, &part);
    check(status.ok(), Exit::data, "SentencePiece cannot encode a text of {} bytes: {}", text.size(),
          status.ToString());
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  // Whether the tokens of a text are those of its lines and line ends: no piece goes over a line end, and nothing is
  // added to, taken from or merged at a text's ends.
  bool lines_are_apart() const {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (piece.size() > 1 && piece.find('\n') != std::string::npos) return false;
    }
    std::vector<int32_t> whole, parts;
    encode_part("a\n b  \n\n", whole);
    for (const std::string_view part : {"a", "\n", " b  ", "\n", "\n"}) encode_part(part, parts);
    return whole == parts;
  }

  spm::SentencePieceProcessor processor_;
  std::string hash_;
  std::vector<int32_t> line_end_;
  bool cuts_at_lines_ = false;
};

// Hands out the lines of all files. Longer ones are cut: SentencePiece would leave them out.
class Lines final : public spm::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& files) {
    for (const auto& path : files)
      for_each_document(path, DocumentRule::line, [&](std::string_view line, uint64_t) { cut(line); });
    check(!lines_.empty(), Exit::data, "{} and {} other files hold no text to learn a vocabulary from",
          files.empty() ? "no file" : files.front(), files.empty() ? 0 : files.size() - 1);
  }
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  spm::util::Status status() const override { return {}; }

 private:
  static constexpr size_t kMaxLine = 4096;  // SentencePiece's default limit is 4192
  void cut(std::string_view line) {
    while (line.size() > kMaxLine) {
      size_t end = line.rfind(' ', kMaxLine);
      if (end == std::string_view::npos || end == 0) end = kMaxLine;
      while (end > 1 && end < line.size() && (uint8_t(line[end]) & 0xc0) == 0x80) --end;  // not within a character
      lines_.emplace_back(line.substr(0, end));
      line.remove_prefix(end);
    }
    if (!line.empty()) lines_.emplace_back(line);
  }
  std::vector<std::string> lines_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

void train_sentencepiece(const TokenizerTraining& training) {
  Lines lines(training.files);
  const std::unordered_map<std::string, std::string> settings{
      {"model_type", training.kind == PieceKind::bpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"byte_fallback", "true"},
      {"character_coverage", "0.9995"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"num_threads", "1"},  // sums of several threads depend on their number
      {"minloglevel", "2"},
  };
  std::string model;
  const auto status = spm::SentencePieceTrainer::Train(settings, &lines, &model);
  check(status.ok(), Exit::data, "a vocabulary of {} cannot be learnt from {} files: {}", training.vocab_size,
        training.files.size(), status.ToString());
  OutputFile out(training.out);
  out.append(model);
  out.commit();
}

}  // namespace trainer
