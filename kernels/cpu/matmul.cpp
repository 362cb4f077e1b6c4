// Dense products: both factors are packed into panels, register tiles sum over a block of depth, sums lie in f32 until
// c is whole.
//
// For blocks of columns of c, and of depth within them: the panels of b are packed once for all workers, then each task
// multiplies a few rows. Each element of c is summed in an order that depends on its depth alone.
#include "kernels/cpu/matmul.h"

#include <algorithm>

#include "core/base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_kernel.h"
#include "kernels/cpu/workers.h"

namespace trainer::cpu {
namespace {

constexpr int64_t kBlockColumns = 768;  // of c and b: rows of a are packed again for each
constexpr int64_t kBlockDepth = 2048;   // packed b has at most 6 MiB of f32
constexpr int64_t kPackPanels = 4;      // of b, packed by one task
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTasks = 8;  // wanted at least; small products are cut finer
constexpr size_t kAlign = 128;

int64_t parts(int64_t n, int64_t step) { return (n + step - 1) / step; }
int64_t round_up(int64_t n, int64_t step) { return parts(n, step) * step; }
size_t aligned(int64_t bytes) { return (size_t(bytes) + kAlign - 1) / kAlign * kAlign; }

// How a product is cut, and what of scratch holds what. A function of shapes and of the kernel.
struct Cut {
  int64_t columns, depth;           // of a block, at most
  int64_t task_rows, task_columns;  // of a task, at most
  bool through_sums, keep_sums;     // c is not f32: sums lie in scratch; for all rows where a block's depth is not all
  size_t b_bytes, a_bytes, sums_bytes;  // packed b; packed a and sums of one worker (or sums of all rows)

  Cut(const MatMul& op, const MatMulKernel& kernel) {
    columns = std::min(kBlockColumns, op.n());
    depth = std::min(kBlockDepth, op.k());
    task_rows = std::min(kTaskRows, round_up(parts(op.m(), kTasks), kernel.rows));
    const int64_t row_tasks = parts(op.m(), task_rows), column_tasks = parts(kTasks, row_tasks);
    task_columns = round_up(parts(columns, column_tasks), kernel.columns);
    through_sums = op.c.dtype != DType::f32;
    keep_sums = through_sums && depth < op.k();
    const int64_t elements = parts(depth, kernel.pair),
                  block_elements = parts(std::min(depth, kernel.depth), kernel.pair);
    b_bytes = aligned(4 * round_up(columns, kernel.columns) * elements);
    a_bytes = aligned(4 * round_up(task_rows, kernel.rows) * block_elements);
    sums_bytes = !through_sums ? 0 : aligned(4 * columns * (keep_sums ? op.m() : task_rows));
  }
  size_t bytes(int workers) const {
    return b_bytes + size_t(workers) * a_bytes + (keep_sums ? 1 : size_t(workers)) * sums_bytes;
  }
};

class Product {
 public:
  Product(Pool& pool, const MatMul& op, const MatMulKernel& kernel, std::span<std::byte> scratch)
      : pool_(pool),
        op_(op),
        kernel_(kernel),
        cut_(op, kernel),
        a_{op.a.data, op.a.stride(), op.a.dtype, op.transpose_a},
        b_{op.b.data, op.b.stride(), op.b.dtype, !op.transpose_b},
        packed_b_(scratch.data()),
        packed_a_(packed_b_ + cut_.b_bytes),
        sums_(packed_a_ + size_t(pool.size()) * cut_.a_bytes) {
    check(cut_.bytes(pool.size()) <= scratch.size(), Exit::device, "matmul: wanted {} bytes of scratch, found {}",
          cut_.bytes(pool.size()), scratch.size());
  }

  void run() {
    for (int64_t n = 0; n < op_.n(); n += cut_.columns)
      for (int64_t k = 0; k < op_.k(); k += cut_.depth) {
        block_ = {n, std::min(cut_.columns, op_.n() - n), k, std::min(cut_.depth, op_.k() - k)};
        pack_b();
        const int64_t column_tasks = parts(block_.columns, cut_.task_columns);
        pool_.tasks(parts(op_.m(), cut_.task_rows) * column_tasks, [&](int64_t task, int worker) {
          multiply(task / column_tasks * cut_.task_rows, task % column_tasks * cut_.task_columns, worker);
        });
      }
  }

 private:
  struct Block {
    int64_t n, columns, k, depth;
  };
  // The panels of b for depths from `k` of the block: block of depth by block of depth, panel by panel.
  std::byte* panel_of_b(int64_t k, int64_t column) const {
    const int64_t all_columns = round_up(block_.columns, kernel_.columns);
    return packed_b_ + 4 * (k / kernel_.pair * all_columns + column * elements(k));
  }
  int64_t depth_from(int64_t k) const { return std::min(kernel_.depth, block_.depth - k); }
  int64_t elements(int64_t k) const { return parts(depth_from(k), kernel_.pair); }

  void pack_b() const {
    const int64_t step = kPackPanels * kernel_.columns, tasks = parts(block_.columns, step);
    pool_.tasks(tasks * parts(block_.depth, kernel_.depth), [&](int64_t task, int) {
      const int64_t column = task % tasks * step, k = task / tasks * kernel_.depth;
      const int64_t lanes = std::min(step, block_.columns - column);
      kernel_.pack(b_, {block_.n + column, lanes, block_.k + k, depth_from(k)}, kernel_.columns, panel_of_b(k, column));
    });
  }
  // Rows from `row` and columns from `column` of the block, over the block's depth.
  void multiply(int64_t row, int64_t column, int worker) const {
    const int64_t rows = std::min(cut_.task_rows, op_.m() - row);
    const int64_t columns = std::min(cut_.task_columns, block_.columns - column);
    const bool first = block_.k == 0, started = start(row, rows, column, columns, worker);
    std::byte* packed = packed_a_ + size_t(worker) * cut_.a_bytes;
    for (int64_t k = 0; k < block_.depth; k += kernel_.depth) {
      kernel_.pack(a_, {row, rows, block_.k + k, depth_from(k)}, kernel_.rows, packed);
      kernel_.multiply({packed, panel_of_b(k, column), sums(row, row, column, worker), sums_stride(), rows, columns,
                        elements(k), started || !first || k > 0});
    }
    if (cut_.through_sums && block_.k + block_.depth == op_.k())
      for (int64_t r = row; r < row + rows; ++r) finish_row(ends(r, row, column, columns, worker));
  }
  // Puts what the products are added to in its place; false where that is nothing.
  bool start(int64_t row, int64_t rows, int64_t column, int64_t columns, int worker) const {
    if (block_.k > 0) return true;
    if (op_.accumulate && !cut_.through_sums) return true;
    if (!op_.bias && !op_.residual && !op_.accumulate) return false;
    for (int64_t r = row; r < row + rows; ++r) start_row(ends(r, row, column, columns, worker), op_.accumulate);
    return true;
  }

  int64_t sums_stride() const { return cut_.through_sums ? cut_.columns : op_.c.stride(); }
  // Where row `row` of the task from `task_row` is summed.
  float* sums(int64_t row, int64_t task_row, int64_t column, int worker) const {
    if (!cut_.through_sums) return data_as<float>(op_.c) + row * op_.c.stride() + block_.n + column;
    std::byte* base = cut_.keep_sums ? sums_ : sums_ + size_t(worker) * cut_.sums_bytes;
    return reinterpret_cast<float*>(base) + (cut_.keep_sums ? row : row - task_row) * cut_.columns + column;
  }
  RowEnds ends(int64_t row, int64_t task_row, int64_t column, int64_t columns, int worker) const {
    const auto at = [&](const Tensor& t, int64_t r) -> std::byte* {
      return t ? t.data + (r * t.stride() + block_.n + column) * int64_t(size_of(t.dtype)) : nullptr;
    };
    return {sums(row, task_row, column, worker),
            at(op_.c, row),
            at(op_.bias, 0),
            at(op_.residual, row),
            columns,
            op_.c.dtype,
            op_.a.dtype};
  }

  Pool& pool_;
  const MatMul& op_;
  const MatMulKernel& kernel_;
  const Cut cut_;
  const Factor a_, b_;
  std::byte *const packed_b_, *const packed_a_, *const sums_;
  Block block_{};
};

void check_shapes(const MatMul& op) {
  const auto is = [](const Tensor& t, int64_t rows, int64_t columns) {
    return t && t.shape.rank == 2 && t.shape[0] == rows && t.shape[1] == columns;
  };
  const int64_t m = op.m(), n = op.n(), k = op.k();
  check(k > 0 && (op.transpose_a ? is(op.a, k, m) : is(op.a, m, k)) &&
            (op.transpose_b ? is(op.b, n, k) : is(op.b, k, n)) && (!op.residual || is(op.residual, m, n)) &&
            (!op.bias || op.bias.elements() == n),
        Exit::device, "matmul: c [{}, {}] is not op(a [{}, {}]) op(b [{}, {}]) + bias [n] + residual [m, n]", m, n,
        op.a.shape[0], op.a.shape[1], op.b.shape[0], op.b.shape[1]);
  const auto known = [](const Tensor& t) { return t.dtype == DType::f32 || t.dtype == DType::bf16; };
  check(known(op.a) && known(op.c) && op.b.dtype == op.a.dtype && (!op.bias || op.bias.dtype == op.a.dtype) &&
            (!op.residual || op.residual.dtype == op.c.dtype),
        Exit::device, "matmul: a {}, b {}, c {}: wanted f32 or bf16, bias and b as a, residual as c",
        name_of(op.a.dtype), name_of(op.b.dtype), name_of(op.c.dtype));
  check(!op.accumulate || (!op.bias && !op.residual), Exit::device, "matmul: accumulate excludes bias and residual");
}

}  // namespace

const MatMulKernel& matmul_kernel(const MatMul& op) {
  return op.a.dtype == DType::bf16 && cpu_level() == Level::avx512_bf16 ? pair_kernel() : float_kernel();
}

size_t scratch_bytes(const MatMul& op, const MatMulKernel& kernel, int workers) {
  return Cut(op, kernel).bytes(workers);
}
size_t scratch_bytes(const MatMul& op) { return scratch_bytes(op, matmul_kernel(op), planned_workers()); }

void multiply(Pool& pool, const MatMul& op, std::span<std::byte> scratch, const MatMulKernel& kernel) {
  check_shapes(op);
  if (op.m() > 0 && op.n() > 0) Product(pool, op, kernel, scratch).run();
}
void multiply(Pool& pool, const MatMul& op, std::span<std::byte> scratch) {
  multiply(pool, op, scratch, matmul_kernel(op));
}

void run(Stream& stream, const MatMul& op) { multiply(pool_of(stream), op, stream.scratch()); }

}  // namespace trainer::cpu
