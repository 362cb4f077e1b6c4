# What the CUDA backend is made of; compiled by nvcc and the C++ compiler, and once more for the emulated device of the tests.
set(cuda_kernels activation.cu column_sum.cu dropout.cu elementwise.cu)
set(cuda_host refuse.cpp)
