#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include <cstring>
#include <span>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grid.h"
#include "kernels/cpu/ids.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

template <class T>
void add_rows(T* out, const T* a, const T* b, size_t n) {
  for_vectors(
      n, [&](size_t i, auto part) HWY_ATTR { store(hn::Add(load(a + i, part), load(b + i, part)), out + i, part); });
}

template <class T>
void add_to_row(float* to, const T* from, size_t n) {
  for_vectors(
      n, [&](size_t i, auto part) HWY_ATTR { store(hn::Add(load(to + i, part), load(from + i, part)), to + i, part); });
}

// to [n] += the rows of `from` that the low halves of `places` name: summed in f32, rounded once.
template <class T>
void add_rows_to_row(bf16* to, Rows<const T> from, int64_t column, std::span<const uint64_t> places, size_t n) {
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    V sum = load(to + i, part);
    for (const uint64_t place : places) sum = hn::Add(sum, load(from[uint32_t(place)] + column + i, part));
    store(sum, to + i, part);
  });
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {
namespace {

// The row of token n in this rank's slice of the table; negative where another slice has it.
class TokenRows {
 public:
  TokenRows(const Tensor& tokens, const VocabularySlice& slice)
      : tokens_(data_as<const int32_t>(tokens)), first_(slice.first), count_(slice.count) {}
  int64_t operator[](int64_t n) const {
    const int64_t row = tokens_[n] - first_;
    return row < count_ ? row : -1;
  }

 private:
  const int32_t* tokens_;
  int64_t first_, count_;
};

constexpr int64_t kColumns = 128;  // of a task

// d_table [V, C] += d_out by `row_of(n)`, where that is not negative. A task owns columns, so every sum has one writer
// and the order of n.
template <class T, class RowOf>
void add_in_place(Pool& pool, const Tensor& d_table, const Tensor& d_out, RowOf row_of) {
  constexpr int64_t kAhead = 8;
  const auto kernel = TRAINER_VECTOR(add_to_row<T>);
  const Rows<float> table(d_table);
  const Rows<const T> from(d_out);
  for_tasks(pool, (from.columns + kColumns - 1) / kColumns, d_out.elements(), [&](int64_t task) {
    const int64_t c = task * kColumns, n = std::min(kColumns, from.columns - c);
    for (int64_t r = 0; r < from.count; ++r) {
      if (const int64_t ahead = r + kAhead < from.count ? row_of(r + kAhead) : -1; ahead >= 0)
        for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(table[ahead] + c + i, 1);
      if (const int64_t row = row_of(r); row >= 0) kernel(table[row] + c, from[r] + c, size_t(n));
    }
  });
}

// The same for a table of bf16. Its rows would be rounded at every addition, so those of d_out are sorted by where they
// go: place = row of the table << 32 | n.
template <class T, class RowOf>
void add_sorted(Stream& stream, const Tensor& d_table, const Tensor& d_out, RowOf row_of) {
  const Rows<bf16> table(d_table);
  const Rows<const T> from(d_out);
  auto* const begin = reinterpret_cast<uint64_t*>(stream.scratch().data());
  auto* end = begin;
  for (int64_t r = 0; r < from.count; ++r)
    if (const int64_t row = row_of(r); row >= 0) *end++ = uint64_t(row) << 32 | uint64_t(r);
  std::sort(begin, end);
  const auto kernel = TRAINER_VECTOR(add_rows_to_row<T>);
  for_tasks(pool_of(stream), (from.columns + kColumns - 1) / kColumns, d_out.elements(), [&](int64_t task) {
    const int64_t c = task * kColumns, n = std::min(kColumns, from.columns - c);
    for (const uint64_t* at = begin; at != end;) {
      const uint64_t row = *at >> 32;
      const uint64_t* next =
          std::find_if(at, static_cast<const uint64_t*>(end), [&](uint64_t p) { return p >> 32 != row; });
      kernel(table[int64_t(row)] + c, from, c, {at, next}, size_t(n));
      at = next;
    }
  });
}

template <class G, class T, class RowOf>
void add_by_row(Stream& stream, const Tensor& d_table, const Tensor& d_out, RowOf row_of) {
  if constexpr (std::is_same_v<G, float>) add_in_place<T>(pool_of(stream), d_table, d_out, row_of);
  else add_sorted<T>(stream, d_table, d_out, row_of);
}

}  // namespace

size_t scratch_bytes(const EmbeddingGrad& op) {
  return op.d_table.dtype == DType::f32 ? 0 : size_t(op.d_out.rows()) * sizeof(uint64_t);
}

void run(Stream& stream, const Embedding& op) {
  check_ids(op.kName, "token", op.tokens, op.slice.vocab);
  check_ids(op.kName, "position", op.positions, op.position_table ? op.position_table.rows() : op.seq_len);
  with_dtype(op.kName, {&op.out, &op.table, &op.position_table}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(add_rows<T>);
    const Rows<T> out(op.out);
    const Rows<const T> table(op.table), position_table(op.position_table);
    const TokenRows rows(op.tokens, op.slice);
    const Positions positions(op.positions, op.seq_len);
    const size_t columns = size_t(out.columns);
    for_rows(pool_of(stream), out.count, out.columns, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* token = rows[n] < 0 ? nullptr : table[rows[n]];
        const T* position = position_table ? position_table[positions[n]] : nullptr;
        if (token && position) kernel(out[n], token, position, columns);
        else if (token || position) std::memcpy(out[n], token ? token : position, columns * sizeof(T));
        else std::memset(out[n], 0, columns * sizeof(T));
      }
    });
  });
}

void run(Stream& stream, const EmbeddingGrad& op) {
  check_ids(op.kName, "token", op.tokens, op.slice.vocab);
  with_dtype(op.kName, {&op.d_table, &op.d_position_table}, [&]<class G>(G) {
    if (!op.accumulate) run(stream, Zero{op.d_table});
    if (op.d_position_table && !op.accumulate_positions) run(stream, Zero{op.d_position_table});
    with_dtype(op.kName, op.d_out.dtype, [&]<class T>(T) {
      add_by_row<G, T>(stream, op.d_table, op.d_out,
                       [rows = TokenRows(op.tokens, op.slice)](int64_t n) { return rows[n]; });
      if (!op.d_position_table) return;
      check_ids(op.kName, "position", op.positions, op.d_position_table.rows());
      add_by_row<G, T>(stream, op.d_position_table, op.d_out,
                       [positions = Positions(op.positions, op.seq_len)](int64_t n) { return positions[n]; });
    });
  });
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
