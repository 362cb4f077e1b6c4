# A test program that runs once per set of vector instructions, and says so where the CPU has not one: arguments as trainer_test.
function(trainer_level_test name)
  cmake_parse_arguments(ARG "" "GROUP" "SOURCES;LIBS" ${ARGN})
  trainer_test(${name} GROUP ${ARG_GROUP} SOURCES ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/support/skip_level.cpp
    LIBS ${ARG_LIBS} trainer_cpu_device)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT TRAINER_CPU_LEVEL=avx2)
  foreach(level avx512 avx512_bf16)
    add_test(NAME ${name}_${level} COMMAND ${name})
    set_tests_properties(${name}_${level} PROPERTIES
      LABELS ${ARG_GROUP} TIMEOUT 600 ENVIRONMENT TRAINER_CPU_LEVEL=${level} SKIP_RETURN_CODE 77)
  endforeach()
endfunction()
