// safetensors files (github.com/huggingface/safetensors, README "Format"): u64 header length, JSON header, data.
//
// The reader takes what the reference reader takes, less duplicate or unknown keys, numbers that are not plain integers
// up to 2^53, more than 16 dimensions, and names that are empty, longer than 1,024 bytes or hold a NUL. Everything is
// checked against the file's real size before memory is asked for.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace trainer {

struct StoredType {
  std::string_view name;  // "F32"
  int bits;
};
const StoredType* find_stored_type(std::string_view name);  // nullptr: unknown

struct SafetensorsEntry {
  std::string name;
  const StoredType* type = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the file
  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of the data
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;
};

// Throws Error(checkpoint).
SafetensorsHeader read_safetensors_header(const File&);

// Sorts the tensors (wide types first, then by name), gives each its place, and returns the bytes that stand before the
// data: its length is a multiple of `align`. The data follow in the order of `tensors`, back to back.
std::string lay_out_safetensors(std::vector<SafetensorsEntry>& tensors,
                                const std::map<std::string, std::string>& metadata, size_t align = 8);

}  // namespace trainer
