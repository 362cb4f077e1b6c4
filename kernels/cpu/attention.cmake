# Sources and flags of the attention kernels.
