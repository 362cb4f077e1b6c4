# What the CUDA backend is made of; compiled by nvcc and the C++ compiler, and once more for the emulated device of the tests.
set(cuda_kernels
  attention_decode.cu attention_generic.cu attention_generic_grad.cu attention_prepare.cu
  activation.cu column_sum.cu dropout.cu elementwise.cu)
set(cuda_host attention.cpp refuse.cpp)
