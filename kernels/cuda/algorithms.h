// Algorithms of matrix products, as lines of text that ranks exchange and a file keeps (device.heuristics):
//   # trainer: algorithms of matrix products, 1
//   GPU | version of cuBLASLt | problem | bytes of workspace | cublasLtMatmulAlgo_t in hexadecimal
// An algorithm may be stored and used again with the same version of the library (cublasLt.h), on the same GPU.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::cuda {

struct MatmulPolicy {
  bool tf32 = false;    // f32 factors are rounded to 10 bits of mantissa
  bool search = false;  // `prepare` (kernels/cuda/matmul.h) times algorithms
};

// Replaces what is known by the lines of a text, of which none is needed; `origin` names it in messages. Lines of other
// GPUs and versions are kept, not used. Throws Error(spec): a wrong line, by its number; or lines of which none is of
// this GPU and this cuBLASLt, for a run that searched again would not repeat the one that wrote them.
void set_algorithms(std::string_view text, const std::string& origin);
// Those that another rank found: they replace this rank's.
void add_algorithms(std::string_view text);
std::string all_algorithms();    // the text of a file: what was set, added and found
std::string found_algorithms();  // by this process since the last set_algorithms; empty: none

// What `prepare` met on this thread since it was last asked.
struct PreparedProducts {
  int64_t searched = 0;            // problems whose algorithm it found by timing
  std::vector<std::string> plain;  // problems that cuBLASLt does not compute, so that the plain kernel will
};
PreparedProducts take_prepared_products();

}  // namespace trainer::cuda
