// TensorBoard event files: TFRecord framing around hand-encoded Event messages (tensorboard's event.proto,
// summary.proto).
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace trainer {

// One TFRecord: u64 length, masked CRC-32C of it, data, masked CRC-32C of the data; little-endian.
std::string tf_record(std::string_view data);
// Event{wall_time, file_version: "brain.Event:2"}: the first record of a file.
std::string encode_version_event(double wall_time);
// Event{wall_time, step, summary{value{tag, simple_value}}}.
std::string encode_scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

class TensorBoard {
 public:
  // Creates events.out.tfevents.<seconds>.<host>.<pid> in `dir`. Throws Error(disk).
  explicit TensorBoard(const std::string& dir);
  void scalar(int64_t step, std::string_view tag, double value);
  void flush();

 private:
  void append(const std::string& event);
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace trainer
