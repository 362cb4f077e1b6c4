// UTF-8, strictly (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trainer {

inline constexpr uint32_t kCodePoints = 0x110000;

// The code point at `at`, which moves behind it. Error(data) with the byte where the text is not UTF-8.
uint32_t next_code_point(std::string_view text, size_t& at);

void append_utf8(std::string& text, uint32_t code_point);

}  // namespace trainer
