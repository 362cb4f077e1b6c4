#include "io/tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "core/base/error.h"

namespace trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

// Header: magic, version u64 at 9, type u8 at 17, sequences u64 at 18, document entries u64 at 26; arrays from 34 on.
constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr uint64_t kVersion = 1, kHeaderBytes = 34;
constexpr uint64_t kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26;
constexpr size_t kScanTokens = size_t{1} << 18;

template <class T>
T read_value(const DataFile& file, uint64_t offset) {
  T value;
  file.read_at(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

// One array of the index, read in order through a small buffer.
template <class T>
class Column {
 public:
  Column(const DataFile& file, uint64_t offset, uint64_t count) : file_(file), offset_(offset), left_(count) {}
  T next() {
    if (at_ == buffer_.size()) refill();
    return buffer_[at_++];
  }
  uint64_t last_offset() const { return offset_ - (buffer_.size() - at_ + 1) * sizeof(T); }  // of the value `next` gave

 private:
  void refill() {
    buffer_.resize(size_t(std::min<uint64_t>(left_, 8192)));
    file_.read_at(offset_, std::as_writable_bytes(std::span(buffer_)));
    offset_ += buffer_.size() * sizeof(T);
    left_ -= buffer_.size();
    at_ = 0;
  }
  const DataFile& file_;
  uint64_t offset_, left_;  // of what is not in the buffer yet
  std::vector<T> buffer_;
  size_t at_ = 0;
};

struct Header {
  TokenType type;
  uint64_t sequences, documents;  // entries of the arrays; documents counts the end as well
};

TokenType check_type(const DataFile& idx) {
  const auto code = read_value<uint8_t>(idx, kTypeAt);
  check(code == uint8_t(TokenType::int32) || code == uint8_t(TokenType::uint16), Exit::data,
        "{} at byte {}: token type {}, wanted 8 (uint16) or 4 (int32)", idx.path(), kTypeAt, code);
  return TokenType(code);
}

Header read_header(const DataFile& idx) {
  check(idx.size() >= kHeaderBytes, Exit::data, "{} at byte {}: the file ends within its {}-byte header", idx.path(),
        idx.size(), kHeaderBytes);
  const auto magic = read_value<std::array<char, kMagic.size()>>(idx, 0);
  check(std::string_view(magic.data(), magic.size()) == kMagic, Exit::data,
        "{} at byte 0: not the index of a token file (it should begin with MMIDIDX)", idx.path());
  const auto version = read_value<uint64_t>(idx, kMagic.size());
  check(version == kVersion, Exit::data, "{} at byte {}: version {}, wanted {}", idx.path(), kMagic.size(), version,
        kVersion);
  const Header h{check_type(idx), read_value<uint64_t>(idx, kSequencesAt), read_value<uint64_t>(idx, kDocumentsAt)};
  const uint64_t room = idx.size() - kHeaderBytes;
  check(h.sequences <= room / 12, Exit::data, "{} at byte {}: {} sequences cannot be in a file of {} bytes", idx.path(),
        kSequencesAt, h.sequences, idx.size());
  check(h.documents >= 1 && h.documents <= room / 8, Exit::data,
        "{} at byte {}: {} document entries cannot be in a file of {} bytes", idx.path(), kDocumentsAt, h.documents,
        idx.size());
  const uint64_t wanted = kHeaderBytes + 12 * h.sequences + 8 * h.documents;
  check(idx.size() == wanted || idx.size() == wanted + h.sequences, Exit::data,
        "{} at byte {}: {} sequences and {} document entries need {} bytes, the file has {}", idx.path(),
        std::min(idx.size(), wanted), h.sequences, h.documents, wanted, idx.size());
  return h;
}

void check_modes(const DataFile& idx, const Header& h) {
  const uint64_t at = kHeaderBytes + 12 * h.sequences + 8 * h.documents;
  if (idx.size() == at) return;
  Column<int8_t> modes(idx, at, h.sequences);
  for (uint64_t i = 0; i < h.sequences; ++i) {
    const int8_t mode = modes.next();
    check(mode == 0, Exit::data, "{} at byte {}: sequence {} is not text (multimodal files are not read)", idx.path(),
          modes.last_offset(), i);
  }
}

}  // namespace

void decode_tokens(TokenType type, const std::byte* from, std::span<int32_t> tokens) {
  if (type == TokenType::int32) {
    std::memcpy(tokens.data(), from, tokens.size_bytes());
    return;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint16_t token;
    std::memcpy(&token, from + 2 * i, sizeof token);
    tokens[i] = token;
  }
}

TokenFile::TokenFile(const std::string& prefix) : prefix_(prefix), bin_(prefix + ".bin"), idx_(prefix + ".idx") {
  read_index();
  manifest_ = read_manifest(prefix);
  if (!manifest_) return;
  check(manifest_->tokens == tokens() && manifest_->documents == documents(), Exit::data,
        "{}.json: {} tokens in {} documents, but the files hold {} in {}; they were not packed together", prefix,
        manifest_->tokens, manifest_->documents, tokens(), documents());
}

void TokenFile::read_index() {
  const Header h = read_header(idx_);
  type_ = h.type;
  sequences_ = int64_t(h.sequences);
  check_modes(idx_, h);
  Column<int32_t> lengths(idx_, kHeaderBytes, h.sequences);
  Column<int64_t> pointers(idx_, kHeaderBytes + 4 * h.sequences, h.sequences);
  Column<int64_t> documents(idx_, kHeaderBytes + 12 * h.sequences, h.documents);
  const std::string& path = idx_.path();
  document_begins_.reserve(h.documents);
  int64_t bytes = 0, sequence = 0;
  for (uint64_t document = 0; document < h.documents; ++document) {
    const int64_t begin = documents.next();
    check(begin >= sequence && begin <= sequences_ && (document > 0 || begin == 0), Exit::data,
          "{} at byte {}: document {} begins at sequence {}, wanted {}", path, documents.last_offset(), document, begin,
          document == 0 ? "0" : fmt::format("{} to {}", sequence, sequences_));
    for (; sequence < begin; ++sequence) {
      const int32_t length = lengths.next();
      check(length >= 0, Exit::data, "{} at byte {}: sequence {} has length {}", path, lengths.last_offset(), sequence,
            length);
      const int64_t pointer = pointers.next();
      check(pointer == bytes, Exit::data, "{} at byte {}: sequence {} begins at byte {} of the .bin, wanted {}", path,
            pointers.last_offset(), sequence, pointer, bytes);
      bytes += length * int64_t(size_of(type_));
    }
    document_begins_.push_back(bytes / int64_t(size_of(type_)));
  }
  check(sequence == sequences_, Exit::data, "{} at byte {}: the last document ends at sequence {}, wanted {}", path,
        documents.last_offset(), sequence, sequences_);
  check(uint64_t(bytes) == bin_.size(), Exit::data, "{} at byte {}: the index wants {} bytes, the file has {}",
        bin_.path(), std::min(uint64_t(bytes), bin_.size()), bytes, bin_.size());
}

void TokenFile::read(int64_t first, std::span<int32_t> tokens) const {
  if (type_ == TokenType::int32) return bin_.read_at(offset_of(first), std::as_writable_bytes(tokens));
  // uint16 values are read into the front half and widened from the back, so no other buffer is needed.
  const auto narrow = std::as_writable_bytes(tokens).first(tokens.size() * 2);
  bin_.read_at(offset_of(first), narrow);
  for (size_t i = tokens.size(); i-- > 0;) {
    uint16_t token;
    std::memcpy(&token, narrow.data() + 2 * i, sizeof token);
    tokens[i] = token;
  }
}

void TokenFile::check_ids(int64_t first, std::span<const int32_t> tokens, int64_t vocab_size) const {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  check(bad == tokens.end(), Exit::data, "{} at byte {}: token id {} is outside the vocabulary of {}", bin_.path(),
        offset_of(first + (bad - tokens.begin())), bad == tokens.end() ? 0 : *bad, vocab_size);
}

void verify_tokens(const TokenFile& file, int64_t vocab_size) {
  if (vocab_size == 0 && file.manifest()) vocab_size = file.manifest()->vocab_size;
  check(vocab_size > 0, Exit::data, "{}.json is missing: name the vocabulary's size to check the ids against",
        file.prefix());
  std::vector<int32_t> tokens(size_t(std::min(file.tokens(), int64_t(kScanTokens))));
  for (int64_t first = 0; first < file.tokens(); first += int64_t(tokens.size())) {
    const auto piece = std::span(tokens).first(size_t(std::min(file.tokens() - first, int64_t(tokens.size()))));
    file.read(first, piece);
    file.check_ids(first, piece, vocab_size);
  }
  if (!file.manifest()) return;
  const auto compare = [](const DataFile& f, uint32_t wanted) {
    const uint32_t found = crc32c_of(f);
    check(found == wanted, Exit::data,
          "{}: crc32c {:08x}, the manifest says {:08x}; the file was changed after packing", f.path(), found, wanted);
  };
  compare(file.bin(), file.manifest()->bin_crc32c);
  compare(file.idx(), file.manifest()->idx_crc32c);
}

TokenWriter::TokenWriter(std::string prefix, int64_t vocab_size)
    : prefix_(std::move(prefix)),
      vocab_size_(vocab_size),
      type_(token_type_for(vocab_size)),
      bin_(prefix_ + ".bin"),
      idx_(prefix_ + ".idx") {}

void TokenWriter::add_document(std::span<const int32_t> tokens) {
  check(tokens.size() <= size_t(std::numeric_limits<int32_t>::max()), Exit::data,
        "{}: a document of {} tokens; the format ends at 2^31 - 1, split it", prefix_, tokens.size());
  for (const int32_t id : tokens)
    check(id >= 0 && id < vocab_size_, Exit::data, "{}: token id {} is outside the vocabulary of {}", prefix_, id,
          vocab_size_);
  if (type_ == TokenType::uint16) {
    narrow_.assign(tokens.begin(), tokens.end());
    bin_.append(std::as_bytes(std::span(narrow_)));
  } else {
    bin_.append(std::as_bytes(tokens));
  }
  lengths_.push_back(int32_t(tokens.size()));
}

TokenManifest TokenWriter::finish(TokenManifest manifest) {
  const auto put = [this](auto value) { idx_.append(std::as_bytes(std::span(&value, 1))); };
  idx_.append(kMagic);
  put(kVersion);
  put(uint8_t(type_));
  put(uint64_t(lengths_.size()));
  put(uint64_t(lengths_.size() + 1));
  idx_.append(std::as_bytes(std::span(lengths_)));
  for (int64_t pointer = 0; const int32_t length : lengths_) {
    put(pointer);
    pointer += length * int64_t(size_of(type_));
  }
  for (size_t document = 0; document <= lengths_.size(); ++document) put(int64_t(document));

  manifest.vocab_size = vocab_size_;
  manifest.tokens = int64_t(bin_.size() / size_of(type_));
  manifest.documents = int64_t(lengths_.size());
  manifest.bin_crc32c = bin_.crc32c();
  manifest.idx_crc32c = idx_.crc32c();
  bin_.commit();
  idx_.commit();
  write_manifest(prefix_, manifest);
  return manifest;
}

}  // namespace trainer
