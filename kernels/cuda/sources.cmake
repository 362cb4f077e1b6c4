# What the CUDA backend is made of; compiled by nvcc and the C++ compiler, and once more for the emulated device of the tests.
set(cuda_kernels elementwise.cu)
set(cuda_host)     # NAME.cpp
