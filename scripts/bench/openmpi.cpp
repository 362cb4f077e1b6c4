// Open MPI's collectives, for comparison: mpirun -n RANKS comm_openmpi RANKS MAX_BYTES
#include <mpi.h>

#include "harness.h"

struct OpenMpi {
  int rank, size;
  MPI_Op bf16_sum;
  OpenMpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Op_create(
        [](void* a, void* b, int* n, MPI_Datatype*) {
          add_bf16(static_cast<uint16_t*>(b), static_cast<uint16_t*>(a), static_cast<uint16_t*>(b), size_t(*n));
        },
        1, &bf16_sum);
  }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  double most(double x) {
    double y;
    MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return y;
  }
  void all_reduce(float* x, size_t n) { MPI_Allreduce(MPI_IN_PLACE, x, int(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
  void all_reduce(uint16_t* x, size_t n) {
    MPI_Allreduce(MPI_IN_PLACE, x, int(n), MPI_UINT16_T, bf16_sum, MPI_COMM_WORLD);
  }
  void reduce_scatter(float* full, float* shard, size_t each) {
    MPI_Reduce_scatter_block(full, shard, int(each), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_gather(float*, float* full, size_t each) {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, full, int(each), MPI_FLOAT, MPI_COMM_WORLD);
  }
  void all_to_all(float* from, float* to, size_t each) {
    MPI_Alltoall(from, int(each), MPI_FLOAT, to, int(each), MPI_FLOAT, MPI_COMM_WORLD);
  }
  void shift(int to, float* a, int from, float* b, size_t bytes) {
    MPI_Sendrecv(a, int(bytes), MPI_BYTE, to, 0, b, int(bytes), MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    OpenMpi mpi;
    bench(mpi, std::atoll(argv[2]));
  }
  MPI_Finalize();
}
