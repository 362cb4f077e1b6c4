#include "tests/model/naive_kernels.h"
#include "tests/model/run_model.h"

void trainer::test::install_kernels() { install_naive_kernels(); }
