# Attention: portable kernels by Highway, and bf16 kernels for AVX512-BF16 in a unit of their own (flags: matmul.cmake).
trainer_library(trainer_attention_kernels SOURCES attention.cpp attention_decode.cpp attention_vector.cpp attention_pair.cpp
                LIBS trainer_cpu_device trainer_ops)
target_link_libraries(trainer_attention_kernels PRIVATE trainer_vector)
set_source_files_properties(attention_pair.cpp PROPERTIES COMPILE_OPTIONS "${TRAINER_AVX512_BF16_FLAGS}")
target_link_libraries(trainer_kernels_cpu PUBLIC trainer_attention_kernels)
