# What the CUDA backend is made of; compiled by nvcc and the C++ compiler, and once more for the emulated device of the tests.
set(cuda_kernels
  attention_backward_kv.cu attention_backward_q.cu attention_decode.cu attention_forward.cu attention_generic.cu
  attention_generic_grad.cu attention_prepare.cu)
set(cuda_host attention.cpp refuse.cpp)
# For sm_90a alone, whatever else is compiled for: no other architecture has their instructions.
set(cuda_sm90 attention_backward_kv_sm90.cu attention_backward_q_sm90.cu attention_forward_sm90.cu tensor_map.cpp)

# The device, and what the application calls.
list(APPEND cuda_kernels control.cu lane_clock.cu)
list(APPEND cuda_host backend.cpp cuda_device.cpp cuda_memory.cpp cuda_stopwatch.cpp lane_clock.cpp table.cpp)

# Rows and elements.
list(APPEND cuda_kernels
  activation.cu column_sum.cu cross_entropy.cu dropout.cu elementwise.cu embedding.cu embedding_grad.cu norm.cu norm_grad.cu
  optimizer.cu rope.cu)

# Matrix products. What is in cuda_libraries loads NVIDIA's; tests/fakecuda has its own in their place.
list(APPEND cuda_kernels matmul_plain.cu)
list(APPEND cuda_host matmul.cpp matmul_algorithms.cpp matmul_problem.cpp matmul_search.cpp)
set(cuda_libraries cublaslt_api.cpp)
