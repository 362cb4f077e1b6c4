// The shared memory of one block: NaN in every bf16 and f32 at its start, with red zones around each array. A write
// into a red zone is found at the end of the block, or at once under the address sanitizer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuemu {

class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void start_block(size_t dynamic_bytes);
  void check_red_zones() const;
  // The array that the declaration `tag` names; the block's first thread to come there places it.
  void* array(const void* tag, size_t bytes, size_t align);
  void* dynamic() const { return dynamic_; }
  size_t dynamic_bytes() const { return dynamic_bytes_; }
  bool contains(const void* p, size_t n) const;
  // Addresses in the space of shared memory.
  uint32_t offset_of(const void* p) const { return uint32_t(static_cast<const char*>(p) - arena_); }
  const char* at(uint32_t offset) const { return arena_ + offset; }

 private:
  struct Array {
    const void* tag;
    char* data;
    size_t bytes;
  };
  void check_red_zones(const char* data, size_t bytes, const char* what) const;

  char* arena_ = nullptr;
  size_t used_ = 0;
  char* dynamic_ = nullptr;
  size_t dynamic_bytes_ = 0, static_bytes_ = 0;
  std::vector<Array> arrays_;
};

}  // namespace cuemu
