// One safetensors file of tensors in memory: what `trainer eval` hands to other programs.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "io/boxes.h"

namespace trainer {

struct NamedTensor {
  std::string name;
  Shape shape;     // as stored; the elements are those of `values` in order
  Tensor values;   // f32; rows may be strided
};
// Replaces the file. Throws Error(disk).
void write_tensor_file(const std::string& path, std::vector<NamedTensor>);
// REQUIRES: every box is a whole tensor (a world of one rank).
void write_boxes_file(const std::string& path, std::span<const NamedBox>);

}  // namespace trainer
