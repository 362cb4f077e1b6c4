// Text files as documents.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trainer {

enum class DocumentRule : uint8_t { file, blank_line, line };

// Calls `take(text, offset)` for each document of a file in order; `offset` is its first byte in the file. What
// separates documents (line ends, blank lines) belongs to none of them, and empty documents are left out. Memory: the
// longest document. Error(data).
void for_each_document(const std::string& path, DocumentRule,
                       const std::function<void(std::string_view, uint64_t)>& take);

}  // namespace trainer
