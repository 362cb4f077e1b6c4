#include "kernels/cpu/table.h"
#include "tests/model/run_model.h"

void trainer::test::install_kernels() { cpu::install_cpu_kernels(1); }
