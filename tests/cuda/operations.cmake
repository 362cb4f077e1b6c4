# The CPU's tests of the operations that a GPU passes too, emulated (tests/cuda) or not (tests/gpu).
set(cuda_rows_tests
  ../matmul/cross_entropy_test.cpp ../rows/activation_test.cpp ../rows/control_test.cpp ../rows/dropout_test.cpp
  ../rows/elementwise_test.cpp ../rows/embedding_test.cpp ../rows/norm_test.cpp ../rows/optimizer_test.cpp ../rows/rope_test.cpp)
set(cuda_attention_tests ../attention/attention_test.cpp ../attention/decode_test.cpp)
set(cuda_matmul_tests ../matmul/matmul_test.cpp)
