// Shard files: written as a stream of blocks, read back block by block, a CRC-32C for each.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "io/failpoints.h"
#include "io/file.h"
#include "io/staging.h"

namespace trainer {

struct FileRecord {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint32_t> crcs;  // of each kBlockBytes, the last one shorter
};

// One file, written in order. Errors: Error(disk), and the file is left as it is.
class ShardWriter {
 public:
  ShardWriter(Staging&, const std::string& directory, std::string name, FailSite);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  ~ShardWriter();  // waits for what is in flight

  void append(std::span<const std::byte>);
  FileRecord finish();  // cut to length and synced

 private:
  void submit_block();
  void take_completion();

  Staging& staging_;
  File file_;
  FailSite site_;
  FileRecord record_;
  std::vector<int> unused_;  // blocks of the staging
  int current_ = -1;         // the block being filled; -1: none
  size_t filled_ = 0;
  int in_flight_ = 0;
};

struct ReadBlock {
  uint64_t offset = 0;
  std::span<const std::byte> bytes;
  std::string problem;  // empty: whole, and its checksum right
};
struct BlockList {  // of one file
  const File& file;
  const FileRecord& record;
  std::span<const size_t> blocks;  // increasing numbers
};
// Reads those blocks and hands each to `consume`, in any order.
void read_blocks(Staging&, const BlockList&, FailSite, const std::function<void(const ReadBlock&)>& consume);

// Throws what the fault at this point of a save asks for.
void pass_failpoint(std::string_view point, FailSite, const std::string& path);

}  // namespace trainer
