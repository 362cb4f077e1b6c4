#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace trainer {
namespace {

constexpr mode_t kMode = 0644;

void check_regular(const File& file, Exit code) {
  struct stat s {};
  if (fstat(file.fd(), &s) != 0) fail_errno(code, file.path(), "stat", errno);
  check(S_ISREG(s.st_mode), code, "{}: wanted a regular file, found something else", file.path());
}

}  // namespace

File::~File() {
  if (fd_ >= 0) close(fd_);
}

void fail_errno(Exit code, const std::string& path, std::string_view what, int error) {
  fail(code, "{}: {}: {}", path, what, strerror(error));
}

File open_directory(const std::string& path, Exit code) {
  File file(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path);
  if (file.fd() < 0) fail_errno(code, path, "open directory", errno);
  return file;
}

File open_beneath(const File& directory, const std::string& name, Exit code) {
  const std::string path = directory.path() + "/" + name;
  check(!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos, code,
        "{}: wanted the plain name of a file in this directory, found '{}'", directory.path(), name);
  // O_NONBLOCK: opening a pipe must not wait for its other end.
  File file(openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), path);
  if (file.fd() < 0 && errno == ELOOP) fail(code, "{}: is a link; copy the file itself here (cp -L)", path);
  if (file.fd() < 0) fail_errno(code, path, "open", errno);
  check_regular(file, code);
  return file;
}

bool exists_beneath(const File& directory, const std::string& name) {
  struct stat s {};
  return fstatat(directory.fd(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0;
}

File create_direct(const std::string& path, bool& direct) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  File file(open(path.c_str(), flags | O_DIRECT, kMode), path);
  direct = file.fd() >= 0;
  if (direct) return file;
  if (errno != EINVAL) fail_errno(Exit::disk, path, "create", errno);
  unlink(path.c_str());  // some kernels create it before they refuse the flag
  File buffered(open(path.c_str(), flags, kMode), path);
  if (buffered.fd() < 0) fail_errno(Exit::disk, path, "create", errno);
  return buffered;
}

uint64_t size_of(const File& file) {
  struct stat s {};
  if (fstat(file.fd(), &s) != 0) fail_errno(Exit::checkpoint, file.path(), "stat", errno);
  return uint64_t(s.st_size);
}

void read_exactly(const File& file, std::span<std::byte> bytes, uint64_t offset, Exit code) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = pread(file.fd(), bytes.data() + done, bytes.size() - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(code, file.path(), "read", errno);
    check(n > 0, code, "{}: ends at byte {}, wanted {}", file.path(), offset + done, offset + bytes.size());
    done += size_t(n);
  }
}

std::string read_text(const File& file, size_t max_bytes, Exit code) {
  const uint64_t size = size_of(file);
  check(size <= max_bytes, code, "{}: wanted at most {} bytes, found {}", file.path(), max_bytes, size);
  std::string text(size, '\0');
  read_exactly(file, std::as_writable_bytes(std::span(text)), 0, code);
  return text;
}

File create_file(const std::string& path) {
  File file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode), path);
  if (file.fd() < 0) fail_errno(Exit::disk, path, "create", errno);
  return file;
}

void write_text(const File& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(file.fd(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(Exit::disk, file.path(), "write", errno);
    text.remove_prefix(size_t(n));
  }
}

void sync(const File& file) {
  if (fsync(file.fd()) != 0) fail_errno(Exit::disk, file.path(), "fsync", errno);
}

void sync_directory(const std::string& path) { sync(open_directory(path, Exit::disk)); }

void rename_path(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) fail_errno(Exit::disk, from, "rename to " + to, errno);
}

}  // namespace trainer
