// Dense products: both factors are packed into panels, register tiles sum over a block of depth, sums lie in f32 until
// c is whole.
//
// For blocks of columns of c, and of depth within them: the panels of b are packed once for all workers, then each task
// multiplies a few rows. It packs these rows of a itself, unless they are few: then a is read in place, or packed once
// as b is. Each element of c is summed in an order that depends on its depth alone.
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
constexpr int64_t kTasks = 8;       // wanted at least; small products are cut finer
constexpr int64_t kFineTasks = 32;  // the same where cutting costs nothing: a is not packed by tasks
constexpr int64_t kInPlaceAlong = 512, kInPlaceAcross = 256;  // columns of c, at most: more repay that a is packed
constexpr int64_t kSharedBytes = 2 << 20;                     // of a packed once, at most
constexpr size_t kAlign = 128;

int64_t parts(int64_t n, int64_t step) { return (n + step - 1) / step; }
int64_t round_up(int64_t n, int64_t step) { return parts(n, step) * step; }
size_t aligned(int64_t bytes) { return (size_t(bytes) + kAlign - 1) / kAlign * kAlign; }

enum class PackA { never, once, by_task };

// How a product is cut, and what of scratch holds what. A function of shapes and of the kernel.
struct Cut {
  int64_t columns, depth;           // of a block, at most
  int64_t task_rows, task_columns;  // of a task, at most
  PackA pack_a;
  bool through_sums, keep_sums;  // c is not f32: sums lie in scratch; for all rows where a block's depth is not all
  size_t b_bytes, a_bytes, sums_bytes;  // packed b; packed a and sums of one worker (or of all)

  Cut(const MatMul& op, const MatMulKernel& kernel)
      : columns(std::min(kBlockColumns, op.n())), depth(std::min(kBlockDepth, op.k())), pack_a(choose(op, kernel)) {
    const bool fine = pack_a != PackA::by_task;
    task_rows = round_up(parts(op.m(), std::max(fine ? 1 : kTasks, parts(op.m(), kTaskRows))), kernel.rows);
    const int64_t column_tasks = parts(fine ? kFineTasks : kTasks, parts(op.m(), task_rows));
    task_columns = round_up(parts(columns, column_tasks), kernel.columns);
    through_sums = op.c.dtype != DType::f32;
    keep_sums = through_sums && depth < op.k();
    const int64_t elements = parts(depth, kernel.pair),
                  block_elements = parts(std::min(depth, kernel.depth), kernel.pair);
    b_bytes = aligned(4 * round_up(columns, kernel.columns) * elements);
    if (pack_a == PackA::never) a_bytes = 0;
    else if (pack_a == PackA::once) a_bytes = aligned(4 * round_up(op.m(), kernel.rows) * elements);
    else a_bytes = aligned(4 * round_up(task_rows, kernel.rows) * block_elements);
    sums_bytes = !through_sums ? 0 : aligned(4 * columns * (keep_sums ? op.m() : task_rows));
  }
  PackA choose(const MatMul& op, const MatMulKernel& kernel) const {
    const bool f32 = op.a.dtype == DType::f32;
    if (kernel.in_place && f32 && op.n() <= (op.transpose_a ? kInPlaceAcross : kInPlaceAlong)) return PackA::never;
    const int64_t elements = parts(depth, kernel.pair);
    return 4 * round_up(op.m(), kernel.rows) * elements <= kSharedBytes ? PackA::once : PackA::by_task;
  }
  size_t all_a_bytes(int workers) const { return a_bytes * (pack_a == PackA::by_task ? size_t(workers) : 1); }
  size_t bytes(int workers) const {
    return b_bytes + all_a_bytes(workers) + (keep_sums ? 1 : size_t(workers)) * sums_bytes;
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
        sums_(packed_a_ + cut_.all_a_bytes(pool.size())) {
    check(cut_.bytes(pool.size()) <= scratch.size(), Exit::device, "matmul: wanted {} bytes of scratch, found {}",
          cut_.bytes(pool.size()), scratch.size());
  }

  void run() {
    for (int64_t n = 0; n < op_.n(); n += cut_.columns)
      for (int64_t k = 0; k < op_.k(); k += cut_.depth) {
        block_ = {n, std::min(cut_.columns, op_.n() - n), k, std::min(cut_.depth, op_.k() - k)};
        pack();
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
  // Where the panel of `lane` begins, for depths from `k` of the block: block of depth by block of depth, panel by
  // panel.
  std::byte* panel(std::byte* packed, int64_t width, int64_t lanes, int64_t k, int64_t lane) const {
    return packed + 4 * (k / kernel_.pair * round_up(lanes, width) + lane * elements(k));
  }
  std::byte* panel_of_b(int64_t k, int64_t column) const {
    return panel(packed_b_, kernel_.columns, block_.columns, k, column);
  }
  std::byte* panel_of_a(int64_t k, int64_t row) const { return panel(packed_a_, kernel_.rows, op_.m(), k, row); }
  int64_t depth_from(int64_t k) const { return std::min(kernel_.depth, block_.depth - k); }
  int64_t elements(int64_t k) const { return parts(depth_from(k), kernel_.pair); }

  // What all workers share of the block.
  void pack() const {
    const int64_t columns = kPackPanels * kernel_.columns, rows = 2 * kPackPanels * kernel_.rows;
    const int64_t b_tasks = parts(block_.columns, columns);
    const int64_t a_tasks = cut_.pack_a == PackA::once ? parts(op_.m(), rows) : 0, tasks = b_tasks + a_tasks;
    pool_.tasks(tasks * parts(block_.depth, kernel_.depth), [&](int64_t task, int) {
      const int64_t i = task % tasks, k = task / tasks * kernel_.depth;
      if (const int64_t column = i * columns; i < b_tasks) {
        const int64_t lanes = std::min(columns, block_.columns - column);
        kernel_.pack(b_, {block_.n + column, lanes, block_.k + k, depth_from(k)}, kernel_.columns,
                     panel_of_b(k, column));
      } else {
        const int64_t row = (i - b_tasks) * rows;
        kernel_.pack(a_, {row, std::min(rows, op_.m() - row), block_.k + k, depth_from(k)}, kernel_.rows,
                     panel_of_a(k, row));
      }
    });
  }
  Steps steps() const { return op_.transpose_a ? Steps{1, a_.stride} : Steps{a_.stride, 1}; }
  // Rows of a for depths from `k` of the block, as the kernel reads them.
  const std::byte* rows_of_a(int64_t row, int64_t rows, int64_t k, int worker) const {
    if (cut_.pack_a == PackA::never) return a_.data + 4 * (row * steps().lane + (block_.k + k) * steps().element);
    if (cut_.pack_a == PackA::once) return panel_of_a(k, row);
    std::byte* packed = packed_a_ + size_t(worker) * cut_.a_bytes;
    kernel_.pack(a_, {row, rows, block_.k + k, depth_from(k)}, kernel_.rows, packed);
    return packed;
  }
  // Rows from `row` and columns from `column` of the block, over the block's depth.
  void multiply(int64_t row, int64_t column, int worker) const {
    const int64_t rows = std::min(cut_.task_rows, op_.m() - row);
    const int64_t columns = std::min(cut_.task_columns, block_.columns - column);
    const Start start = start_of(row, column);
    const bool started = begin(row, rows, column, columns, worker);
    for (int64_t k = 0; k < block_.depth; k += kernel_.depth) {
      const bool first = block_.k == 0 && k == 0;
      kernel_.multiply({rows_of_a(row, rows, k, worker), panel_of_b(k, column), sums(row, row, column, worker),
                        sums_stride(), rows, columns, elements(k), started || !first,
                        cut_.pack_a == PackA::never ? steps() : Steps(), first ? start : Start()});
    }
    if (cut_.through_sums && block_.k + block_.depth == op_.k())
      for (int64_t r = row; r < row + rows; ++r) finish_row(ends(r, row, column, columns, worker));
  }
  // The kernel itself can add what is f32 to its first sums.
  bool kernel_starts() const { return kernel_.in_place && !cut_.through_sums && op_.a.dtype == DType::f32; }
  Start start_of(int64_t row, int64_t column) const {
    if (!kernel_starts()) return {};
    const int64_t n = block_.n + column;
    return {op_.bias ? data_as<const float>(op_.bias) + n : nullptr,
            op_.residual ? data_as<const float>(op_.residual) + row * op_.residual.stride() + n : nullptr,
            op_.residual ? op_.residual.stride() : 0};
  }
  // Puts what the products are added to in its place; false where that is nothing, or the kernel's matter.
  bool begin(int64_t row, int64_t rows, int64_t column, int64_t columns, int worker) const {
    if (block_.k > 0) return true;
    if (op_.accumulate && !cut_.through_sums) return true;
    if (kernel_starts() || (!op_.bias && !op_.residual && !op_.accumulate)) return false;
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

}  // namespace

const MatMulKernel& matmul_kernel(const MatMul& op) {
  return op.a.dtype == DType::bf16 && cpu_level() == Level::avx512_bf16 ? pair_kernel() : float_kernel();
}

size_t scratch_bytes(const MatMul& op, const MatMulKernel& kernel, int workers) {
  return Cut(op, kernel).bytes(workers);
}
size_t scratch_bytes(const MatMul& op) { return scratch_bytes(op, matmul_kernel(op), planned_workers()); }

void multiply(Pool& pool, const MatMul& op, std::span<std::byte> scratch, const MatMulKernel& kernel) {
  check_operands(op);
  if (op.m() > 0 && op.n() > 0) Product(pool, op, kernel, scratch).run();
}
void multiply(Pool& pool, const MatMul& op, std::span<std::byte> scratch) {
  multiply(pool, op, scratch, matmul_kernel(op));
}

void run(Stream& stream, const MatMul& op) { multiply(pool_of(stream), op, stream.scratch()); }

}  // namespace trainer::cpu
