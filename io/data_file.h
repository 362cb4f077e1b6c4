// Plain files of the data part: input that is checked before it is believed, output that appears whole or not at all.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// A regular file open for reading. Errors are Exit::data and name the file.
class DataFile {
 public:
  explicit DataFile(std::string path);
  DataFile(DataFile&&) noexcept;
  ~DataFile();
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  uint64_t size() const { return size_; }  // when it was opened
  // All of `bytes`, or an error with the offset at which the file ended.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// The whole file; Error(data) where it is larger than `limit` bytes.
std::string read_whole(const std::string& path, uint64_t limit);

// CRC-32C of the whole file, read in pieces.
uint32_t crc32c_of(const DataFile&);

// A file written in order under a temporary name beside the final one. Errors are Exit::disk and name the file.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  ~OutputFile();  // what was not committed is removed
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }
  // Syncs the file, gives it its final name, and syncs the folder.
  void commit();
  uint64_t size() const { return size_; }   // appended so far
  uint32_t crc32c() const { return crc_; }  // of what was appended so far

 private:
  void flush();
  std::string path_, temporary_;
  int fd_ = -1;
  bool committed_ = false;
  uint64_t size_ = 0;
  uint32_t crc_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace trainer
