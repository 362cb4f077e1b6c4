// Owned file descriptors and the few file operations that must not fail silently. Errors name the path and what the
// kernel said.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace trainer {

class File {
 public:
  File() = default;
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~File();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

[[noreturn]] void fail_errno(Exit code, const std::string& path, std::string_view what, int error);

File open_directory(const std::string& path, Exit code);
// A regular file directly in `directory`: a name with '/', a link, a pipe or a device is refused.
File open_beneath(const File& directory, const std::string& name, Exit code);
bool exists_beneath(const File& directory, const std::string& name);

// New, for writing; past the page cache where the file system allows it (`direct` tells).
File create_direct(const std::string& path, bool& direct);

uint64_t size_of(const File&);
void read_exactly(const File&, std::span<std::byte>, uint64_t offset, Exit code);
std::string read_text(const File&, size_t max_bytes, Exit code);

// These write: Error(disk).
void write_text(const File&, std::string_view text);
File create_file(const std::string& path);
void sync(const File&);
void sync_directory(const std::string& path);
void rename_path(const std::string& from, const std::string& to);

}  // namespace trainer
