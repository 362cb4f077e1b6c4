// Who am I: the world this process was started in.
#pragma once

namespace trainer {

struct Place {
  int world = 1, rank = 0;
};

// From --ranks, Slurm, Open MPI / PMIx or torchrun-style variables, in this order. A world of more than one rank is
// refused (Error(rank)) until this build can connect ranks: never a silent world of one.
Place find_place(int ranks_option);

}  // namespace trainer
