# Sources and flags of the rows kernels.
