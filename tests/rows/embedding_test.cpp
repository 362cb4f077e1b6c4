#include "tests/rows/cases.h"
#include "tests/support/gradient_check.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr int64_t kVocab = 29, kMaxPosition = 50;
constexpr VocabularySlice kWhole{0, kVocab, kVocab};

Values random_ids(int64_t n, uint32_t seed, int64_t limit) {
  return map([&](double x) { return std::floor(x * double(limit)); },
             map([](double x) { return (x + 1) / 2; }, random_values(n, seed)));
}
// to[row_of(n)] += from[n].
template <class RowOf>
void scatter(Values& to, const Values& from, size_t columns, RowOf row_of) {
  for (size_t i = 0; i < from.size(); ++i) to[size_t(row_of(i / columns)) * columns + i % columns] += from[i];
}

}  // namespace

TEST_CASE("embedding adds up the rows of its tables") {
  for_each_case([](const Case& c) {
    const Values tokens = random_ids(c.rows, 1, kVocab), positions = random_ids(c.rows, 2, kMaxPosition);
    const Buffer ids(DType::i32, {c.rows}, tokens), position_ids(DType::i32, {c.rows}, positions);
    const Buffer table = random_buffer(c.dtype, {kVocab, c.columns}, 3),
                 position_table = random_buffer(c.dtype, {kMaxPosition, c.columns}, 4);
    const Values rows = table.values(), position_rows = position_table.values();
    Buffer out = empty_buffer(c);
    const auto wanted = [&](auto position_of) {
      return [&, position_of](size_t i) {
        const size_t n = i / size_t(c.columns), k = i % size_t(c.columns);
        const int64_t p = position_of(n);
        return rows[size_t(tokens[n]) * size_t(c.columns) + k] + (p < 0 ? 0 : position_rows[size_t(p * c.columns) + k]);
      };
    };
    const auto check = [&](const Embedding& op, auto value) {
      run_with_any_threads(op, {&out});
      Values all(size_t(out.elements()));
      for (size_t i = 0; i < all.size(); ++i) all[i] = round_to(c.dtype, value(i));
      require_close(out, all, {0, 0});
    };
    check({out, ids, table, {}, {}, 7, kWhole}, wanted([](size_t) { return int64_t{-1}; }));
    check({out, ids, table, position_table, {}, 7, kWhole}, wanted([](size_t n) { return int64_t(n % 7); }));
    check({out, ids, table, position_table, position_ids, 7, kWhole},
          wanted([&](size_t n) { return int64_t(positions[n]); }));
  });
}

TEST_CASE("embedding's gradient adds rows of one token, over or onto what is there, and rounds once") {
  for_each_pair([](const Case& to, const Case& c) {
    const Values tokens = random_ids(c.rows, 1, kVocab), positions = random_ids(c.rows, 2, kMaxPosition);
    const Buffer ids(DType::i32, {c.rows}, tokens), position_ids(DType::i32, {c.rows}, positions),
        d_out = random_buffer(c, 3);
    const Shape shape{kVocab, c.columns}, position_shape{kMaxPosition, c.columns};
    for (const bool accumulate : {false, true}) {
      Buffer d_table = random_buffer(to.dtype, shape, 4), d_position_table = random_buffer(to.dtype, position_shape, 5);
      Values wanted = accumulate ? d_table.values() : Values(size_t(shape.elements()));
      Values wanted_positions = accumulate ? Values(size_t(position_shape.elements())) : d_position_table.values();
      scatter(wanted, d_out.values(), size_t(c.columns), [&](size_t n) { return tokens[n]; });
      scatter(wanted_positions, d_out.values(), size_t(c.columns),
              [&](size_t n) { return accumulate ? positions[n] : double(n % 7); });
      const Tensor& given = accumulate ? position_ids.tensor() : Tensor{};
      run_with_any_threads(
          EmbeddingGrad{d_table, d_position_table, d_out, ids, given, 7, accumulate, !accumulate, kWhole},
          {&d_table, &d_position_table});
      const Tolerance allowed = to.dtype == DType::f32 ? Tolerance{1e-5, 2e-5} : Tolerance{kRoundedOnce, 2e-5};
      require_close(d_table, wanted, allowed);
      require_close(d_position_table, wanted_positions, allowed);
    }
  });
}

TEST_CASE("embedding's gradient is the slope with respect to the tables") {
  const int64_t rows = 9, columns = 5;
  const Buffer ids(DType::i32, {rows}, random_ids(rows, 1, 4)), d_out = random_buffer(DType::f32, {rows, columns}, 2);
  Buffer table = random_buffer(DType::f32, {4, columns}, 3),
         position_table = random_buffer(DType::f32, {3, columns}, 4);
  Buffer d_table(DType::f32, {4, columns}), d_position_table(DType::f32, {3, columns}),
      out(DType::f32, {rows, columns});
  run_op(EmbeddingGrad{d_table, d_position_table, d_out, ids, {}, 3, false, false, {0, 4, 4}});
  const auto slope = [&](Buffer& input) {
    return central_difference(
        [&](const Values& v) {
          input.set(v);
          run_op(Embedding{out, ids, table, position_table, {}, 3, {0, 4, 4}}, 1);
          return dot(out.values(), d_out.values());
        },
        input.values());
  };
  require_close(d_table, slope(table), {1e-3, 1e-3});
  require_close(d_position_table, slope(position_table), {1e-3, 1e-3});
}

TEST_CASE("slices of the vocabulary add up to the whole embedding and hold its gradient") {
  for_each_pair([](const Case& to, const Case& c) {
    const Buffer ids(DType::i32, {c.rows}, random_ids(c.rows, 1, kVocab)), d_out = random_buffer(c, 2);
    const Buffer table = random_buffer(c.dtype, {kVocab, c.columns}, 3);
    Buffer whole = empty_buffer(c), d_whole(to.dtype, {kVocab, c.columns});
    run_op(Embedding{whole, ids, table, {}, {}, 7, kWhole});
    run_op(EmbeddingGrad{d_whole, {}, d_out, ids, {}, 7, false, false, kWhole});
    const Values table_rows = table.values();
    Values sum(size_t(whole.elements())), d_sum;
    for (const VocabularySlice& slice :
         {VocabularySlice{0, 11, kVocab}, {11, 11, kVocab}, {22, 7, kVocab}, {kVocab, 0, kVocab}}) {
      constexpr int64_t kRows = 12;  // with padding
      Values rows(table_rows.begin() + slice.first * c.columns,
                  table_rows.begin() + (slice.first + slice.count) * c.columns);
      rows.resize(size_t(kRows * c.columns), 1e9);  // what padding holds must not show
      const Buffer part(c.dtype, {kRows, c.columns}, rows);
      Buffer out = empty_buffer(c), d_part = random_buffer(to.dtype, {kRows, c.columns}, 4);
      run_op(Embedding{out, ids, part, {}, {}, 7, slice});
      run_op(EmbeddingGrad{d_part, {}, d_out, ids, {}, 7, false, false, slice});
      REQUIRE(d_part.intact());
      REQUIRE(out.intact());
      const Values values = out.values();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      const Values d = d_part.values();
      d_sum.insert(d_sum.end(), d.begin(), d.begin() + slice.count * c.columns);
      REQUIRE(std::all_of(d.begin() + slice.count * c.columns, d.end(), [](double x) { return x == 0; }));
    }
    REQUIRE(sum == whole.values());
    REQUIRE(d_sum == d_whole.values());
  });
}

TEST_CASE("embedding takes no token outside its table") {
  const Buffer table(DType::f32, {3, 2}, Values(6)), ids(DType::i32, {2}, Values{2, 3}),
      sound(DType::i32, {2}, Values{2, 0}), negative(DType::i32, {2}, Values{-1, 0});
  Buffer out(DType::f32, {2, 2});
  if constexpr (kIdsAreChecked) {
    REQUIRE_THROWS_WITH(run_op(Embedding{out, ids, table, {}, {}, 2, {0, 3, 3}}),
                        "embedding: row 1: wanted a token below 3, found 3");
    REQUIRE_THROWS_WITH(run_op(EmbeddingGrad{table, {}, out, negative, {}, 2, true, true, {0, 3, 3}}),
                        "embedding_grad: row 0: wanted a token below 3, found -1");
  } else {  // the loss shows it; the gradient passes it over
    run_op(Embedding{out, ids, table, {}, {}, 2, {0, 3, 3}});
    const Values rows = out.values();
    REQUIRE((rows[1] == 0 && std::isnan(rows[2]) && std::isnan(rows[3])));
    out.fill(1);
    run_op(EmbeddingGrad{table, {}, out, negative, {}, 2, true, true, {0, 3, 3}});
    require_close(table, {1, 1, 0, 0, 0, 0}, {0, 0});
  }
  const Buffer other(DType::bf16, {3, 2}, Values(6));
  REQUIRE_THROWS_WITH(run_op(EmbeddingGrad{table, other, out, sound, {}, 2, true, true, {0, 3, 3}}),
                      Catch::Contains("one dtype"));
}
