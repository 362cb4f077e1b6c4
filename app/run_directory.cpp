#include "app/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/host.h"

namespace trainer {
namespace {

void create(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  check(!error, Exit::disk, "{}: cannot be created: {}; choose another log.dir or checkpoint.dir", dir,
        error.message());
}
std::string who_am_i() { return fmt::format("process {} on {}", getpid(), host_name()); }
std::string read_text(int fd) {
  char text[256];
  const ssize_t n = pread(fd, text, sizeof text, 0);
  return n > 0 ? std::string(text, size_t(n)) : std::string("another process");
}

}  // namespace

RunDirectory::RunDirectory(const RunSpec& spec, bool owner)
    : log_(spec.log.dir), checkpoints_(spec.checkpoint.dir.value_or(spec.log.dir + "/checkpoints")) {
  create(log_);
  create(checkpoints_);
  if (!owner) return;
  log_lock_ = lock(log_);
  checkpoint_lock_ = lock(checkpoints_);
}
RunDirectory::~RunDirectory() {
  for (int fd : {log_lock_, checkpoint_lock_})
    if (fd >= 0) close(fd);  // which also unlocks
}

// The kernel drops the lock when its process dies, however it dies.
int RunDirectory::lock(const std::string& dir) const {
  const std::string path = dir + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  check(fd >= 0, Exit::disk, "{}: cannot be written: {}", path, std::strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const std::string other = read_text(fd);
    close(fd);
    fail(Exit::in_use, "{}: in use by {}; wait for it, stop it, or choose another log.dir", dir, other);
  }
  const std::string me = who_am_i();
  const bool written = ftruncate(fd, 0) == 0 && pwrite(fd, me.data(), me.size(), 0) == ssize_t(me.size());
  check(written, Exit::disk, "{}: cannot be written: {}", path, std::strerror(errno));
  return fd;
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  std::ofstream out(file(name), std::ios::trunc);
  out << text;
  out.flush();
  check(out.good(), Exit::disk, "{}: cannot be written", file(name));
}

}  // namespace trainer
