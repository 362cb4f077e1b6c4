#include <limits>

#include "tests/rows/cases.h"
#include "tests/support/record.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr int64_t kSizes[] = {1, 3, 17, 63, 65, 130, 16384, 40001};

// The state of AdamW over n parameters, the first of which decay, and the same in float64.
struct State {
  int64_t n;
  DType gradients;
  Buffer master = random_buffer(DType::f32, {n}, 1), m = random_buffer(DType::f32, {n}, 2, 0.1);
  Buffer v{DType::f32, {n}, map([](double x) { return x * x; }, random_values(n, 3, 0.1))};
  Buffer g = random_buffer(gradients, {n}, 4, 50), weight{DType::bf16, {n}};
  int64_t decayed = n;
  Record<Control> control{{.lr = 1e-2f, .bias1 = 0.3f, .bias2 = 0.1f, .factor = 1.0f / 64, .skip = 0}};
  AdamW op(bool with_weight) {
    AdamW a{master, {}, m, v, g, control};
    if (with_weight) a.weight = weight;
    a.weight_decay = 0.1f;
    a.decayed = decayed;
    return a;
  }
};

struct Expected {
  Values master, m, v;
};
Expected reference_adamw(const State& s) {
  Expected e{s.master.values(), s.m.values(), s.v.values()};
  const Values g = s.g.values();
  const double lr = s.control->lr;
  for (size_t i = 0; i < g.size(); ++i) {
    const double decay = int64_t(i) < s.decayed ? 0.1 : 0;
    const double gi = g[i] * double(s.control->factor);
    e.m[i] = 0.9 * e.m[i] + 0.1 * gi;
    e.v[i] = 0.95 * e.v[i] + 0.05 * gi * gi;
    e.master[i] = e.master[i] * (1 - lr * decay) -
                  lr * (e.m[i] / double(s.control->bias1)) / (std::sqrt(e.v[i] / double(s.control->bias2)) + 1e-8);
  }
  return e;
}

}  // namespace

TEST_CASE("AdamW agrees with float64, and the weights are its rounded master") {
  for (const DType gradients : {DType::f32, DType::bf16})
    for (const int64_t n : kSizes)
      for (const bool with_weight : {false, true}) {
        INFO(n << " parameters, gradients " << name_of(gradients));
        State s{n, gradients};
        const Expected wanted = reference_adamw(s);
        run_with_any_threads(s.op(with_weight), {&s.master, &s.m, &s.v, &s.weight});
        require_close(s.master, wanted.master, {1e-5, 1e-6});
        require_close(s.m, wanted.m, {1e-5, 1e-7});
        require_close(s.v, wanted.v, {1e-5, 1e-8});
        if (with_weight)
          require_close(s.weight, map([](double x) { return round_to(DType::bf16, x); }, s.master.values()), {0, 0});
      }
}

TEST_CASE("AdamW decays the first elements alone, wherever they end") {
  for (const int64_t n : kSizes)
    for (const int64_t decayed : {int64_t{0}, n / 3, n / 2 + 1}) {
      INFO(decayed << " of " << n << " parameters decay");
      State s{n, DType::f32};
      s.decayed = decayed;
      const Expected wanted = reference_adamw(s);
      run_with_any_threads(s.op(true), {&s.master, &s.m, &s.v, &s.weight});
      require_close(s.master, wanted.master, {1e-5, 1e-6});
    }
}

TEST_CASE("AdamW's streamed weights are the same as stored ones") {
  const int64_t n = (int64_t{1} << 20) + 5;  // enough to stream, with a tail
  State s{n, DType::f32};
  std::vector<bf16, DeviceAllocator<bf16>> memory(size_t(n) + 32);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  AdamW op = s.op(false);
  op.weight = make_tensor(aligned, DType::bf16, {n});
  run_op(op);
  const auto* master = data_as<const float>(op.master);
  for (int64_t i = 0; i < n; ++i)
    if (data_as<const bf16>(op.weight)[i].bits != to_bf16(master[i]).bits) FAIL("weight " << i << " of " << n);
}

TEST_CASE("AdamW changes nothing in a skipped step") {
  State s{130, DType::f32};
  s.control->skip = 1;
  s.weight.fill(7);
  const State before{130, DType::f32};
  run_op(s.op(true));
  REQUIRE(s.master.values() == before.master.values());
  REQUIRE(s.m.values() == before.m.values());
  REQUIRE(s.v.values() == before.v.values());
  REQUIRE(s.weight.values() == Values(130, 7.0));
}

TEST_CASE("the squared norm adds to the outcome, and a huge gradient does not overflow") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t n : kSizes)
      for (const double scale : {1.0, 1e30}) {
        const Buffer g = random_buffer(dtype, {n}, 1, scale, {0, 1});
        double wanted = 2;
        for (const double x : g.values()) wanted += x * x;
        double first = 0;
        for (const int threads : {1, 2, 3}) {
          Record<Outcome> outcome({.norm2 = 2});
          run_op(SquaredNorm{g, outcome}, threads);
          REQUIRE(std::abs(outcome->norm2 - wanted) <= 1e-12 * wanted);
          REQUIRE(outcome->nonfinite == 0);
          if (threads == 1) first = outcome->norm2;
          REQUIRE(outcome->norm2 == first);
        }
      }
}

TEST_CASE("the squared norm counts a gradient that is not finite, wherever it stands") {
  for (const int64_t at : {0, 16, 999, 1000})
    for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
      Values values(1001, 1.0);
      values[size_t(at)] = bad;
      Record<Outcome> outcome({.nonfinite = 3});
      run_op(SquaredNorm{Buffer(DType::bf16, {1001}, values), outcome});
      REQUIRE(outcome->nonfinite == 4);
    }
}

TEST_CASE("what an update is about to change is set aside, unless there is none") {
  for (const int64_t n : kSizes)
    for (const int skip : {0, 1}) {
      const Buffer from = random_buffer(DType::f32, {n}, 1);
      Buffer to = random_buffer(DType::f32, {n}, 2);
      const Values wanted = skip ? to.values() : from.values();
      Record<Control> control({.skip = skip});
      run_op(SetAside{to, from, control});
      require_close(to, wanted, {0, 0});
    }
}
