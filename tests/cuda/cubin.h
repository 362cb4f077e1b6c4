// What nvcc made of the kernels, read from the code that a program carries for GPUs: registers, memory, instructions.
#pragma once
#include <string>
#include <vector>

namespace trainer::test {

struct KernelCode {
  std::string
      name;    // without arguments, namespaces and hashes: "map_kernel<8, 2, MapTwo<8, SwiGluOf, bf16, bf16, bf16>>"
  int sm = 0;  // 80: of sm_80
  int registers = 0;              // of a thread
  int shared = 0;                 // bytes of static shared memory of a block
  int stack = 0;                  // bytes of local memory of a thread
  int loads16 = 0, stores16 = 0;  // instructions that move 16 bytes of global memory
  int copies = 0;                 // asynchronous ones, from global to shared memory; those of sm_90a bring tiles
  int mma = 0;                    // matrix products of a warp, or of a warp group
  int mma_waits = 0;              // waits of a warp group for its products
  int beside_products = 0;        // the most exponentials and the like between two waits with no product between them
};

// Of every kernel in the file (an object, a library, a program), by name and sm. Throws std::runtime_error: the file
// cannot be read, has no such code, or has it compressed.
//
// Sources: ELF as cuobjdump shows it (.nv.info has registers and stack by symbol, .nv.shared.KERNEL is as long as the
// static shared memory); instructions are 16 bytes, their opcode bits 0 to 11 and, of loads and stores, the width bits
// 73 to 75, as nvdisasm 13 shows them for sm_80, sm_90a and sm_100a alike.
std::vector<KernelCode> kernels_in(const std::string& path);

}  // namespace trainer::test
