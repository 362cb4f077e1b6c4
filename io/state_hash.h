// A hash of the state that no layout changes: a sum over the elements of all logical tensors of a mix of (tensor's name
// and type, index in the tensor, bits). So any rank can hash what it holds, in any order, and the sums add up.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "io/boxes.h"

namespace trainer {

using TensorHashes = std::map<std::string, uint64_t>;

// Of elements [first, first + elements) of the flattened logical tensor.
uint64_t hash_elements(const std::string& tensor, DType, int64_t first, const std::byte* values, int64_t elements);

// REQUIRES: no element is in two boxes.
TensorHashes tensor_hashes(std::span<const NamedBox>);
uint64_t combined(const TensorHashes&);
// Of what this rank saves: summed over the ranks of a world, the hash of the state.
inline uint64_t state_hash(const StateView& view) { return combined(tensor_hashes(boxes_to_save(view))); }

}  // namespace trainer
