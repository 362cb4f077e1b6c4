#include "io/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/host.h"

namespace trainer {
namespace {

template <class T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += char(uint8_t(value >> (8 * i)));
}
uint32_t masked_crc(std::string_view data) {
  const uint32_t crc = crc32c(0, std::as_bytes(std::span(data)));
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(uint8_t(value | 0x80));
  out += char(uint8_t(value));
}
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
void append_key(std::string& out, int field, WireType type) { append_varint(out, uint64_t(field << 3 | type)); }
void append_bytes(std::string& out, int field, std::string_view data) {
  append_key(out, field, kBytes);
  append_varint(out, data.size());
  out += data;
}
std::string wall_time_field(double wall_time) {
  std::string out;
  append_key(out, 1, kFixed64);
  append_little_endian(out, std::bit_cast<uint64_t>(wall_time));
  return out;
}
double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string tf_record(std::string_view data) {
  std::string out;
  append_little_endian(out, uint64_t(data.size()));
  append_little_endian(out, masked_crc(out));
  out += data;
  append_little_endian(out, masked_crc(data));
  return out;
}

std::string encode_version_event(double wall_time) {
  std::string event = wall_time_field(wall_time);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string encode_scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string point;
  append_bytes(point, 1, tag);
  append_key(point, 2, kFixed32);
  append_little_endian(point, std::bit_cast<uint32_t>(value));
  std::string summary;
  append_bytes(summary, 1, point);
  std::string event = wall_time_field(wall_time);
  append_key(event, 2, kVarint);
  append_varint(event, uint64_t(step));
  append_bytes(event, 5, summary);
  return event;
}

TensorBoard::TensorBoard(const std::string& dir)
    : path_(fmt::format("{}/events.out.tfevents.{:010}.{}.{}", dir, int64_t(wall_clock()), host_name(), getpid())),
      file_(std::fopen(path_.c_str(), "wb"), &std::fclose) {
  check(file_ != nullptr, Exit::disk, "{}: cannot be created: {}", path_, std::strerror(errno));
  append(encode_version_event(wall_clock()));
}
void TensorBoard::scalar(int64_t step, std::string_view tag, double value) {
  append(encode_scalar_event(wall_clock(), step, tag, float(value)));
}
void TensorBoard::flush() { std::fflush(file_.get()); }
void TensorBoard::append(const std::string& event) {
  const std::string record = tf_record(event);
  check(std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size(), Exit::disk,
        "{}: an event cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace trainer
