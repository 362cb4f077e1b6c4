#include "io/utf8.h"

#include <bit>

#include "core/base/error.h"

namespace trainer {

uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto lead = uint8_t(text[at]);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const auto length = size_t(std::countl_one(lead));
  bool good = length >= 2 && length <= 4 && at + length <= text.size();
  uint32_t code_point = lead & (0xffu >> (length + 1));
  for (size_t i = 1; good && i < length; ++i) {
    const auto byte = uint8_t(text[at + i]);
    good = (byte & 0xc0) == 0x80;
    code_point = code_point << 6 | (byte & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  good = good && code_point >= kSmallest[length] && code_point < kCodePoints &&
         (code_point < 0xd800 || code_point > 0xdfff);
  check(good, Exit::data, "byte {} of the text (0x{:02x}) is not UTF-8; convert it, or pack with `--tokenizer bytes`",
        at, lead);
  at += length;
  return code_point;
}

void append_utf8(std::string& text, uint32_t c) {
  const auto tail = [&](int shift) { text.push_back(char(0x80 | (c >> shift & 0x3f))); };
  if (c < 0x80) {
    text.push_back(char(c));
  } else if (c < 0x800) {
    text.push_back(char(0xc0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    text.push_back(char(0xe0 | c >> 12));
    tail(6), tail(0);
  } else {
    text.push_back(char(0xf0 | c >> 18));
    tail(12), tail(6), tail(0);
  }
}

}  // namespace trainer
