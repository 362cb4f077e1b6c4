#include "parallel/comm/shm_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace trainer {
namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kPiece = size_t{64} << 20;
constexpr size_t kSpare = size_t{64} << 20;  // left to the rest of the system

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// What the kernel would give without swapping, and what the control group still allows. Ranks reserve at the same time,
// so this is asked before every piece.
size_t available_bytes() {
  size_t available = SIZE_MAX, kilobytes = 0, limit = 0, used = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (std::sscanf(line.c_str(), "MemAvailable: %zu kB", &kilobytes) == 1) available = kilobytes << 10;
  std::ifstream max("/sys/fs/cgroup/memory.max"), current("/sys/fs/cgroup/memory.current");
  if (max >> limit && current >> used) available = std::min(available, limit > used ? limit - used : 0);
  return available;
}

bool faults_give_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string line;
  std::getline(file, line);
  return line.find("[never]") == std::string::npos && line.find("[deny]") == std::string::npos;
}

int open_peer(int rank, pid_t pid, int fd) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const int peer = open(path.c_str(), O_RDWR | O_CLOEXEC);
  check(peer >= 0, Exit::rank, "[shm] the memory of rank {} ({}): {}; do the ranks run as one user in one container?",
        rank, path, std::strerror(errno));
  return peer;
}

}  // namespace

Segment::Segment(int fd, size_t arena_bytes) : fd_(fd), arena_bytes_(arena_bytes) {}

Segment::Segment(size_t arena_bytes) : Segment(memfd_create("trainer-arena", MFD_CLOEXEC), arena_bytes) {
  check(fd_ >= 0, Exit::memory, "[memory] memfd_create: {}", std::strerror(errno));
  const size_t wanted = shm::kControlBytes + arena_bytes, available = available_bytes();
  check(available > kSpare && wanted <= available - kSpare, Exit::memory,
        "[memory] the arena needs {} bytes of shared memory, the system has {} left; fewer ranks per host, a smaller "
        "model or batch, or recompute needs less",
        wanted, available);
  check(ftruncate(fd_, off_t(round_up(wanted, kHuge))) == 0, Exit::memory, "[memory] a memfd of {} bytes: {}", wanted,
        std::strerror(errno));
  map();
  make_resident(true);
}

Segment::~Segment() {
  if (mapping_) munmap(mapping_, mapped_);
  if (fd_ >= 0) close(fd_);
}

// Ranks that are threads of one process share the mapping itself: it lives as long as any of them needs it.
std::shared_ptr<Segment> Segment::of_peer(int rank, const std::string& introduction) {
  int pid = 0, fd = -1;
  size_t bytes = 0, address = 0;
  check(std::sscanf(introduction.c_str(), "%d:%d:%zu:%zx", &pid, &fd, &bytes, &address) == 4, Exit::rank,
        "[shm] rank {} introduced its memory as '{}'", rank, introduction);
  if (pid == getpid()) return *reinterpret_cast<const std::shared_ptr<Segment>*>(address);
  std::shared_ptr<Segment> segment(new Segment(open_peer(rank, pid, fd), bytes));
  segment->map();
  segment->make_resident(false);
  return segment;
}

void Segment::map() {
  const size_t bytes = round_up(shm::kControlBytes + arena_bytes_, kHuge);
  mapped_ = bytes + kHuge;
  void* p = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(p != MAP_FAILED, Exit::memory, "[memory] {} bytes of addresses: {}", mapped_, std::strerror(errno));
  mapping_ = p;
  base_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(p), kHuge));
  check(mmap(base_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, 0) != MAP_FAILED, Exit::memory,
        "[memory] mmap of {} bytes: {}", bytes, std::strerror(errno));
  madvise(base_, bytes, MADV_HUGEPAGE);
}

// A page that cannot be had must be an error here and not a SIGBUS later, so memory is allocated before it is touched.
// Where faults do not give huge pages (shmem_enabled is `never`), pages are collapsed afterwards, if the kernel can.
void Segment::make_resident(bool create) {
  const bool collapse = create && !faults_give_huge_pages();
  const size_t bytes = round_up(shm::kControlBytes + arena_bytes_, kHuge);
  for (size_t begin = 0; begin < bytes; begin += kPiece) {
    const size_t n = std::min(kPiece, bytes - begin);
    if (create) {
      check(n + kSpare <= available_bytes(), Exit::memory,
            "[memory] the arena needs {} bytes of shared memory, the system had {} of them; fewer ranks per host, a "
            "smaller model or batch, or recompute needs less",
            bytes, begin);
      if (collapse) posix_fallocate(fd_, off_t(begin), off_t(n));
    }
    if (collapse) madvise(base_ + begin, n, MADV_COLLAPSE);
    if (madvise(base_ + begin, n, MADV_POPULATE_WRITE) == 0) continue;
    check(errno == EINVAL, Exit::memory, "[memory] {} bytes of shared memory for the arena: {}", bytes,
          std::strerror(errno));
    const int error = posix_fallocate(fd_, off_t(begin), off_t(n));
    check(error == 0, Exit::memory, "[memory] {} bytes of shared memory for the arena: {}", bytes,
          std::strerror(error));
    volatile const std::byte* page = base_ + begin;
    for (size_t i = 0; i < n; i += 4096) (void)page[i];
  }
}

std::span<std::byte> SharedMemory::reserve(size_t bytes) {
  check(!segment_, Exit::memory, "[memory] the arena is reserved once");
  segment_ = std::make_shared<Segment>(bytes);
  return segment_->arena();
}

std::string SharedMemory::introduction() const {
  check(segment_ != nullptr, Exit::rank, "[shm] a rank's memory is reserved before it joins a world");
  return fmt::format("{}:{}:{}:{:x}", getpid(), segment_->fd(), segment_->arena().size(),
                     reinterpret_cast<uintptr_t>(&segment_));
}

}  // namespace trainer
