#include "io/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace trainer {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

}  // namespace

DataFile::DataFile(std::string path) : path_(std::move(path)) {
  // Not blocking: opening a pipe without a writer would hang.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check(fd_ >= 0, Exit::data, "{}: cannot be opened: {}", path_, std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) {
    ::close(fd_);
    fail(Exit::data, "{}: is not a regular file", path_);
  }
  size_ = uint64_t(status.st_size);
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

DataFile::~DataFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DataFile::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(fd_, bytes.data(), bytes.size(), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    check(n >= 0, Exit::data, "{} at byte {}: cannot be read: {}", path_, offset, std::strerror(errno));
    check(n > 0, Exit::data, "{} at byte {}: the file ends, {} more bytes were expected", path_, offset, bytes.size());
    bytes = bytes.subspan(size_t(n));
    offset += uint64_t(n);
  }
}

std::string read_whole(const std::string& path, uint64_t limit) {
  const DataFile file(path);
  check(file.size() <= limit, Exit::data, "{}: {} bytes, at most {} are read here", path, file.size(), limit);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

uint32_t crc32c_of(const DataFile& file) {
  std::vector<std::byte> buffer(size_t(std::min<uint64_t>(file.size(), kPiece)));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const auto piece = std::span(buffer).first(size_t(std::min<uint64_t>(buffer.size(), file.size() - at)));
    file.read_at(at, piece);
    crc = crc32c(crc, piece);
  }
  return crc;
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".partial") {
  std::error_code ignored;  // the open below says what is wrong
  if (const auto folder = std::filesystem::path(path_).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, ignored);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check(fd_ >= 0, Exit::disk, "{}: cannot be created: {}", temporary_, std::strerror(errno));
  buffer_.reserve(kPiece);
}

OutputFile::~OutputFile() {
  if (committed_) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  crc_ = trainer::crc32c(crc_, bytes);
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPiece - buffer_.size()));
    buffer_.insert(buffer_.end(), piece.begin(), piece.end());
    bytes = bytes.subspan(piece.size());
    if (buffer_.size() == kPiece) flush();
  }
}

void OutputFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, Exit::disk, "{} at byte {}: cannot be written: {}", temporary_, size_ - buffer_.size() + done,
          std::strerror(errno));
    done += size_t(n);
  }
  buffer_.clear();
}

void OutputFile::commit() {
  flush();
  check(::fsync(fd_) == 0, Exit::disk, "{}: cannot be synced: {}", temporary_, std::strerror(errno));
  check(::rename(temporary_.c_str(), path_.c_str()) == 0, Exit::disk, "{}: cannot be renamed to {}: {}", temporary_,
        path_, std::strerror(errno));
  ::close(fd_);
  committed_ = true;
  const std::string folder = std::filesystem::absolute(path_).parent_path();
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = folder_fd >= 0 && ::fsync(folder_fd) == 0;
  const int error = errno;
  if (folder_fd >= 0) ::close(folder_fd);
  check(synced, Exit::disk, "{}: the folder cannot be synced: {}", folder, std::strerror(error));
}

}  // namespace trainer
