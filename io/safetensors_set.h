// A model as Hugging Face keeps it: one model.safetensors, or several with model.safetensors.index.json.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace trainer {

struct SafetensorsSet {
  struct Part {
    File file;
    SafetensorsHeader header;
  };
  struct Place {
    const Part* part = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };
  std::vector<Part> parts;
  std::map<std::string, Place> tensors;  // into parts
};

// Each tensor lies in exactly one file, and index and headers agree; files are plain names in the directory.
// Error(checkpoint).
SafetensorsSet open_safetensors_set(const std::string& directory);

inline constexpr char kSafetensorsFile[] = "model.safetensors";
inline constexpr char kSafetensorsIndex[] = "model.safetensors.index.json";

}  // namespace trainer
