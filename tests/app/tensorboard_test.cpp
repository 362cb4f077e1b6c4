// Golden bytes of TensorBoard's event files; the checksums' vectors come from tensorboard's own tests.
#include "io/tensorboard.h"

#include <catch2/catch.hpp>
#include <string>

using namespace trainer;

namespace {
std::string hex(const std::string& bytes) {
  std::string out;
  for (unsigned char c : bytes) out += "0123456789abcdef"[c >> 4], out += "0123456789abcdef"[c & 15];
  return out;
}
}  // namespace

TEST_CASE("a record is framed by its length and two masked checksums") {
  // masked_crc32c("\x1a\x11CRC test, one two") = 0x5794d08a
  const std::string record = tf_record("\x1a\x11" "CRC test, one two");
  REQUIRE(record.size() == 8 + 4 + 19 + 4);
  REQUIRE(hex(record.substr(0, 8)) == "1300000000000000");
  REQUIRE(hex(record.substr(31)) == "8ad09457");
}

TEST_CASE("events are encoded as event.proto says") {
  REQUIRE(hex(encode_version_event(1.0)) == "09000000000000f03f" "1a0d" + hex("brain.Event:2"));
  // wall_time 2.0, step 300, summary { value { tag "loss" simple_value 1.5 } }
  REQUIRE(hex(encode_scalar_event(2.0, 300, "loss", 1.5f)) ==
          "090000000000000040" "10ac02" "2a0d" "0a0b" "0a046c6f7373" "150000c03f");
}
