# Whether there is a CUDA toolkit, and where. A build without one has kernels/no_cuda in its place.
#   TRAINER_CUDA_TOOLKIT   include/ and bin/nvcc lie below it; empty: none
set(TRAINER_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (where a toolkit is found), ON, OFF")
set(TRAINER_CUDA_ARCHITECTURES "80;90a;100a" CACHE STRING "Architectures the CUDA kernels are compiled for")
find_path(TRAINER_CUDA_TOOLKIT NAMES include/cuda_runtime_api.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda)
if(NOT TRAINER_CUDA_TOOLKIT)
  set(TRAINER_CUDA_TOOLKIT "")
  if(TRAINER_CUDA STREQUAL ON)
    message(FATAL_ERROR "TRAINER_CUDA=ON, but no CUDA toolkit was found: set CUDA_HOME, or use TRAINER_CUDA=OFF")
  endif()
endif()

set(TRAINER_HAS_CUDA OFF)
if(TRAINER_CUDA_TOOLKIT AND NOT TRAINER_CUDA STREQUAL OFF AND EXISTS ${TRAINER_CUDA_TOOLKIT}/bin/nvcc)
  set(CMAKE_CUDA_COMPILER ${TRAINER_CUDA_TOOLKIT}/bin/nvcc)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc does
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(TRAINER_HAS_CUDA ON)
endif()
