// MANIFEST.json: what a checkpoint holds and where. A step is loadable if and only if its manifest verifies.
//
// The text begins {"crc32c":"xxxxxxxx", the CRC-32C of the whole text with these eight digits as zeros.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/model/param.h"
#include "io/safetensors.h"
#include "io/shards.h"

namespace trainer {

inline constexpr char kManifestFile[] = "MANIFEST.json";
inline constexpr int kManifestFormat = 1;

// What a run is besides its tensors.
struct RunState {
  int64_t step = 0;     // finished optimizer steps
  int64_t tokens = 0;   // trained on so far
  int64_t samples = 0;  // position in the data: the next global sample number
  uint64_t data_hash = 0, plan_hash = 0;
  uint64_t seed = 0;      // every random number is a function of it and of indices
  std::string tokenizer;  // data.tokenizer of the spec
  nlohmann::json model;   // the spec's section, see core/spec/print.h
  nlohmann::json spec;    // the whole resolved spec; null where there is none (an import)
};

struct StoredBox {
  size_t file = 0;  // in Manifest::files
  uint64_t offset = 0, bytes = 0;
  Box box;
};
struct StoredTensor {
  std::string name;
  const StoredType* type = nullptr;
  Shape shape;                   // one or two dimensions
  uint64_t hash = 0;             // see io/state_hash.h
  std::vector<StoredBox> boxes;  // cover the tensor, each element once
};
struct Manifest {
  RunState run;
  int64_t generation = 0;
  uint64_t state_hash = 0;
  std::vector<FileRecord> files;
  std::vector<StoredTensor> tensors;  // by name
};

std::string to_text(const Manifest&);
// Checks the CRC before it reads a word, then everything else: boxes within their tensors and files, covering each
// tensor once. Throws Error(checkpoint).
Manifest parse_manifest(const std::string& text, const std::string& path);

// What one rank of several saved is a manifest too, whose boxes need not cover.
Manifest parse_part(const std::string& text, const std::string& path);
// Adds the part's files and boxes. Throws Error(checkpoint) where ranks do not agree on a tensor.
void merge(Manifest& all, const Manifest& part);
void check_cover(const Manifest&, const std::string& path);

const StoredTensor* find_tensor(const Manifest&, const std::string& name);  // nullptr: none
std::string hex(uint64_t);

}  // namespace trainer
