#include "core/ops/attention.h"

#include "core/base/error.h"

namespace trainer {
namespace {

void check_rows(const char* op, const char* name, const Tensor& t, const Shape& wanted) {
  check(t && t.shape == wanted, Exit::device, "{}: {}: wanted [{}, {}, {}], found another shape", op, name, wanted[0],
        wanted[1], wanted[2]);
}

void check_dtypes(const char* op, DType dtype, std::initializer_list<const Tensor*> tensors) {
  check(dtype == DType::f32 || dtype == DType::bf16, Exit::device, "{}: wanted f32 or bf16, found {}", op,
        name_of(dtype));
  for (const Tensor* t : tensors)
    check(t->dtype == dtype, Exit::device, "{}: wanted tensors of one dtype, found {} beside {}", op, name_of(t->dtype),
          name_of(dtype));
}

template <class Op>
void check_common(const Op& op, std::initializer_list<const Tensor*> like_q) {
  const Shape& q = op.q.shape;
  check(q.rank == 3 && op.k.shape.rank == 3 && op.batch > 0 && q[0] > 0 && q[0] % op.batch == 0, Exit::device,
        "{}: wanted q [batch * T, H, D] and k [batch * T, K, D], found {} rows in {} sequences", op.kName, q[0],
        op.batch);
  const int64_t kv_heads = op.k.shape[1], width = q[2];
  check(kv_heads > 0 && q[1] > 0 && q[1] % kv_heads == 0, Exit::device,
        "{}: wanted a multiple of {} kv heads, found {} heads", op.kName, kv_heads, q[1]);
  check(width > 0 && width % 2 == 0 && width <= kMaxHeadWidth, Exit::device,
        "{}: wanted an even head width up to {}, found {}", op.kName, kMaxHeadWidth, width);
  check_dtypes(op.kName, op.q.dtype, like_q);
  check_rows(op.kName, "k", op.k, {q[0], kv_heads, width});
  check_rows(op.kName, "v", op.v, op.k.shape);
  check_rows(op.kName, "out", op.out, q);
  check(op.lse && op.lse.dtype == DType::f32 && op.lse.dense() && op.lse.elements() == q[0] * q[1], Exit::device,
        "{}: wanted a dense f32 lse [{}, {}, {}]", op.kName, op.batch, q[1], op.seq_len());
  const Tensor& segments = op.mask.segments;
  check(!segments || (segments.dtype == DType::i32 && segments.dense() && segments.elements() == q[0]), Exit::device,
        "{}: wanted dense i32 segments of {} rows, found {} of {}", op.kName, q[0], segments.elements(),
        name_of(segments.dtype));
}

}  // namespace

void check_operands(const Attention& op) { check_common(op, {&op.k, &op.v, &op.out}); }

void check_operands(const AttentionGrad& op) {
  check_common(op, {&op.k, &op.v, &op.out, &op.d_out, &op.d_q, &op.d_k, &op.d_v});
  check_rows(op.kName, "d_out", op.d_out, op.q.shape);
  check_rows(op.kName, "d_q", op.d_q, op.q.shape);
  check_rows(op.kName, "d_k", op.d_k, op.k.shape);
  check_rows(op.kName, "d_v", op.d_v, op.k.shape);
}

void check_operands(const AttentionDecode& op) {
  const Shape &q = op.q.shape, &cache = op.k_cache.shape;
  check(q.rank == 3 && cache.rank == 3 && op.out.shape == q && op.v_cache.shape == cache && cache[0] == q[0],
        Exit::device, "{}: wanted q and out [B, H, D], k_cache and v_cache [B, capacity, K * D]", op.kName);
  check(op.kv_heads > 0 && q[1] % op.kv_heads == 0 && cache[2] == op.kv_heads * q[2], Exit::device,
        "{}: wanted a multiple of {} kv heads and caches of {} columns, found {} heads and {} columns", op.kName,
        op.kv_heads, op.kv_heads * q[2], q[1], cache[2]);
  check(q[2] <= kMaxHeadWidth, Exit::device, "{}: wanted a head width up to {}, found {}", op.kName, kMaxHeadWidth,
        q[2]);
  check(op.length > 0 && op.length <= cache[1], Exit::device,
        "{}: wanted a length within the cache's 1 to {} rows, found {}", op.kName, cache[1], op.length);
  check_dtypes(op.kName, op.q.dtype, {&op.k_cache, &op.v_cache, &op.out});
}

}  // namespace trainer
