#include "io/documents.h"

#include <algorithm>

#include "core/base/error.h"
#include "io/data_file.h"

namespace trainer {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

}  // namespace

void for_each_document(const std::string& path, DocumentRule rule,
                       const std::function<void(std::string_view, uint64_t)>& take) {
  const DataFile file(path);
  const bool blank_line = rule == DocumentRule::blank_line;
  const std::string_view separator = blank_line ? "\n\n" : "\n";
  std::string text;              // read and not taken yet
  uint64_t begin = 0, read = 0;  // offsets of its first byte and behind its last
  const auto take_part = [&](size_t from, size_t end) {
    if (end > from) take(std::string_view(text).substr(from, end - from), begin + from);
  };
  const auto skip_blank = [&](size_t at) {
    return blank_line ? std::min(text.find_first_not_of('\n', at), text.size()) : at;
  };
  while (read < file.size()) {
    const size_t fresh =
        size_t(rule == DocumentRule::file ? file.size() : std::min<uint64_t>(kPiece, file.size() - read));
    size_t search = text.size() - std::min(text.size(), separator.size() - 1);
    text.resize(text.size() + fresh);
    file.read_at(read, std::as_writable_bytes(std::span(text)).last(fresh));
    read += fresh;
    if (rule == DocumentRule::file) break;
    size_t from = skip_blank(0);
    search = std::max(search, from);
    for (size_t at; (at = text.find(separator, search)) != std::string::npos;) {
      take_part(from, at);
      from = search = skip_blank(at + separator.size());
    }
    text.erase(0, from);
    begin += from;
  }
  if (blank_line && text.ends_with('\n')) text.pop_back();
  take_part(0, text.size());
}

}  // namespace trainer
