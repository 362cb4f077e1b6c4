# Sources and flags of the matmul kernels.
