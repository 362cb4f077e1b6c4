#include "io/shards.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/crc32c.h"

namespace trainer {
namespace {

void flip_bit(std::span<std::byte> bytes, uint64_t bit) {
  if (bytes.empty()) return;
  bytes[bit / 8 % bytes.size()] ^= std::byte(1u << bit % 8);
}

}  // namespace

void pass_failpoint(std::string_view point, FailSite site, const std::string& path) {
  if (const Fault fault = failpoint(point, site); fault.error != 0) fail_errno(Exit::disk, path, point, fault.error);
}

ShardWriter::ShardWriter(Staging& staging, const std::string& directory, std::string name, FailSite site)
    : staging_(staging), site_(site) {
  bool direct = false;  // a file system without it is served all the same, through the page cache
  file_ = create_direct(directory + "/" + name, direct);
  record_.name = std::move(name);
  for (int i = staging.blocks(); i-- > 0;) unused_.push_back(i);
}

ShardWriter::~ShardWriter() {
  while (in_flight_ > 0) {
    try {
      take_completion();
    } catch (const Error&) {  // the first one is on its way up already
    }
  }
}

void ShardWriter::take_completion() {
  --in_flight_;
  const Completion c = staging_.engine().wait();
  unused_.push_back(int(c.tag));
  if (c.error != 0) fail_errno(Exit::disk, file_.path(), "write", c.error);
  pass_failpoint("shard_completion", site_, file_.path());
}

// The last block is written whole (O_DIRECT wants it) and cut afterwards.
void ShardWriter::submit_block() {
  const std::span<std::byte> block = staging_.block(current_);
  const size_t padded = (filled_ + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
  std::memset(block.data() + filled_, 0, padded - filled_);
  record_.crcs.push_back(crc32c(0, block.first(filled_)));
  const Fault fault = failpoint("shard_write", site_);
  if (fault.error != 0) fail_errno(Exit::disk, file_.path(), "shard_write", fault.error);
  if (fault.flip_bit) flip_bit(block.first(filled_), *fault.flip_bit);
  const Transfer transfer{file_.fd(), /*write=*/true, block.data(), padded, record_.bytes / kBlockBytes * kBlockBytes};
  staging_.engine().submit(transfer, uint64_t(current_));
  ++in_flight_;
  record_.bytes += filled_;
  current_ = -1;
  filled_ = 0;
}

void ShardWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (current_ < 0) {
      pass_failpoint("snapshot_copy", site_, file_.path());
      while (unused_.empty()) take_completion();
      current_ = unused_.back();
      unused_.pop_back();
    }
    const size_t n = std::min(bytes.size(), kBlockBytes - filled_);
    std::memcpy(staging_.block(current_).data() + filled_, bytes.data(), n);
    filled_ += n;
    bytes = bytes.subspan(n);
    if (filled_ == kBlockBytes) submit_block();
  }
}

FileRecord ShardWriter::finish() {
  if (filled_ > 0) submit_block();
  pass_failpoint("snapshot_end", site_, file_.path());
  while (in_flight_ > 0) take_completion();
  if (ftruncate(file_.fd(), off_t(record_.bytes)) != 0) fail_errno(Exit::disk, file_.path(), "cut to length", errno);
  pass_failpoint("shard_written", site_, file_.path());
  sync(file_);
  pass_failpoint("shard_synced", site_, file_.path());
  return record_;
}

namespace {

struct Arrival {
  size_t number = 0;  // of the block
  std::span<std::byte> bytes;
  Completion completion;
};

ReadBlock checked_block(const FileRecord& record, const Arrival& a, FailSite site) {
  const auto& [number, bytes, c] = a;
  const Fault fault = failpoint("load_block", site);
  if (fault.flip_bit) flip_bit(bytes, *fault.flip_bit);
  ReadBlock block{number * kBlockBytes, bytes, {}};
  const int error = c.error != 0 ? c.error : fault.error;
  if (error != 0) block.problem = fmt::format("read: {}", strerror(error));
  else if (c.bytes != bytes.size()) block.problem = fmt::format("wanted {} bytes, read {}", bytes.size(), c.bytes);
  else if (const uint32_t crc = crc32c(0, bytes); crc != record.crcs[number])
    block.problem = fmt::format("CRC32C of the block: wanted {:08x}, found {:08x}", record.crcs[number], crc);
  return block;
}

}  // namespace

void read_blocks(Staging& staging, const BlockList& list, FailSite site,
                 const std::function<void(const ReadBlock&)>& consume) {
  const auto& [file, record, blocks] = list;
  std::vector<int> unused;
  std::vector<size_t> number(size_t(staging.blocks()));  // by buffer: the block it holds
  for (int i = staging.blocks(); i-- > 0;) unused.push_back(i);
  const auto bytes_of = [&all = list.record](size_t n) {
    return size_t(std::min<uint64_t>(kBlockBytes, all.bytes - n * kBlockBytes));
  };

  // Whatever happens, no read may be left in flight: the buffers serve the next file.
  std::exception_ptr failure;
  size_t next = 0, in_flight = 0;
  while (in_flight > 0 || (next < blocks.size() && !failure)) {
    if (next < blocks.size() && !unused.empty() && !failure) {
      const int buffer = unused.back();
      unused.pop_back();
      number[size_t(buffer)] = blocks[next++];
      const size_t n = number[size_t(buffer)];
      const Transfer read{file.fd(), /*write=*/false, staging.block(buffer).data(), bytes_of(n), n * kBlockBytes};
      staging.engine().submit(read, uint64_t(buffer));
      ++in_flight;
      continue;
    }
    const Completion c = staging.engine().wait();
    --in_flight;
    unused.push_back(int(c.tag));
    if (failure) continue;
    const size_t n = number[c.tag];
    try {
      consume(checked_block(record, {n, staging.block(int(c.tag)).first(bytes_of(n)), c}, site));
    } catch (...) { failure = std::current_exception(); }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trainer
