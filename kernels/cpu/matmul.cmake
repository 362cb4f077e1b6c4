# Dense products and the fused head.

# Of translation units with AVX512-BF16 kernels, which are called only where the CPU has it. Such a unit must not emit inline
# functions of common headers (std::, core/): the linker might keep its copy for everybody. The warnings are false reports about
# GCC 12's own header.
set(TRAINER_AVX512_BF16_FLAGS -march=x86-64-v4 -mavx512bf16 -mprefer-vector-width=512 -Wno-uninitialized
                              -Wno-maybe-uninitialized)

trainer_library(trainer_matmul_kernels SOURCES matmul.cpp matmul_pack.cpp matmul_float.cpp matmul_pair.cpp cross_entropy.cpp
                LIBS trainer_cpu_device trainer_ops)
target_link_libraries(trainer_matmul_kernels PRIVATE trainer_vector)
set_source_files_properties(matmul_pair.cpp PROPERTIES COMPILE_OPTIONS "${TRAINER_AVX512_BF16_FLAGS}")
target_link_libraries(trainer_kernels_cpu PUBLIC trainer_matmul_kernels)
