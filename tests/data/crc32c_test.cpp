// CRC-32C against published vectors (RFC 3720 B.4), both implementations.
#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "core/base/crc32c.h"

using namespace trainer;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

TEST_CASE("crc32c gives the published values") {
  for (const auto function : {crc32c, crc32c_portable}) {
    const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});
    REQUIRE(function(0, {}) == 0);
    REQUIRE(function(0, bytes_of("123456789")) == 0xe3069283);
    REQUIRE(function(0, zeros) == 0x8a9136aa);
    REQUIRE(function(0, ones) == 0x62a8ab43);
  }
}

TEST_CASE("crc32c continues over any cut, and both implementations agree") {
  std::vector<std::byte> bytes(301);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 37 + i / 7);
  const std::span<const std::byte> all(bytes);
  const uint32_t whole = crc32c(0, all);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    REQUIRE(crc32c(crc32c(0, all.first(cut)), all.subspan(cut)) == whole);
    REQUIRE(crc32c_portable(0, all.subspan(cut)) == crc32c(0, all.subspan(cut)));
  }
}
