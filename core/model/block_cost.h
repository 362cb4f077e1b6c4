// What the calls of a block cost, counted by making them on the meter: the one formula that splits and simulations use.
#pragma once
#include <vector>

#include "core/model/model.h"

namespace trainer {

struct BlockCost {  // of one micro-batch, on this rank; what ranks of tp say to each other is not in it
  Cost forward, recompute, backward_input, backward_weight;
};

// By block. `train.micro_batch` x `data.seq_len` tokens; recompute as the spec says.
std::vector<BlockCost> block_costs(const RunSpec&, const Model&);

}  // namespace trainer
