# One interface target carries the warnings and the sanitizers of the project's own code. GCC 12 reports -Wrestrict falsely on string sums.
add_library(trainer_flags INTERFACE)
target_compile_options(trainer_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wno-sign-conversion;-Wno-restrict;-Werror>")
target_include_directories(trainer_flags INTERFACE ${CMAKE_SOURCE_DIR})

if(TRAINER_SANITIZE)
  add_compile_options(-fsanitize=${TRAINER_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TRAINER_SANITIZE})
  if(TRAINER_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  # A check of every pointer's use is a third of the compile time; beside the address sanitizer's own it is left to ubsan.
  if(TRAINER_SANITIZE STREQUAL "address,undefined")
    add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
  endif()
  # GCC 12 with a sanitizer reports false positives of these two inside the standard library.
  target_compile_options(trainer_flags INTERFACE -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-tsan)
endif()

find_program(CCACHE ccache)
if(CCACHE)  # CCACHE_DEPEND: what it does not know yet is not preprocessed first
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 ${CCACHE})
endif()

# Compiled in two thirds of the time: for what takes no time in a run.
function(trainer_short_build name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# A library of one room: trainer_library(NAME SOURCES... LIBS...)
function(trainer_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC trainer_flags ${ARG_LIBS})
endfunction()
