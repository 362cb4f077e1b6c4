# Highway, compiled for AVX2 and AVX-512 in one source each (kernels/cpu/dispatch.h). AVX2 is the least the kernels need, so it is
# Highway's baseline here, whatever the compiler's flags.
add_library(trainer_vector INTERFACE)
target_link_libraries(trainer_vector INTERFACE trainer_flags PkgConfig::HWY)
target_compile_definitions(trainer_vector INTERFACE HWY_BASELINE_TARGETS=HWY_AVX2 "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)")

# The row and element-wise kernels: a library of their own, so that their tests need no others.
trainer_library(trainer_row_kernels
  SOURCES activation.cpp control.cpp dropout.cpp elementwise.cpp embedding.cpp norm.cpp optimizer.cpp rope.cpp
  LIBS trainer_cpu_device trainer_ops)
target_link_libraries(trainer_row_kernels PRIVATE trainer_vector)
target_link_libraries(trainer_kernels_cpu PUBLIC trainer_row_kernels)
