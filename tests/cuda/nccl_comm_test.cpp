// The NCCL backend on a shim of NCCL, ranks as threads: operations, members of groups, what is counted.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/device/collective.h"
#include "core/ops/elementwise.h"
#include "parallel/comm/nccl/nccl_plan.h"
#include "tests/cuda/nccl_rank.h"
#include "tests/fakecuda/nccl_shim.h"
#include "tests/fakecuda/nccl_table.h"

using namespace trainer;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Two sums of n numbers below 1.5, each rounded at every addition to a dtype of relative error `unit` / 2.
double slack_of(DType dtype, int ranks) {
  const double unit = dtype == DType::f32 ? 0x1p-23 : dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f64 ? 0x1p-52 : 0;
  return 1.5 * ranks * ranks * unit;
}

void test_operations(GpuRank& rank, Comm& comm, const std::vector<int64_t>& sizes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64})
    for (const int64_t size : sizes) {
      rank.reset();
      const double slack = slack_of(dtype, comm.size());
      comm.barrier(rank.lane());
      rank.drain();
      test_all_reduce(rank, comm, dtype, size, slack);
      for (const bool in_place : {false, true}) {
        test_reduce_scatter(rank, comm, dtype, size, in_place, slack);
        test_all_gather(rank, comm, dtype, size, in_place);
      }
      test_messages(rank, comm, dtype, std::min<int64_t>(size, 300));
    }
}

// The sum of `n` elements over the world, as bytes.
std::vector<std::vector<std::byte>> sums(int ranks, DType dtype, int64_t n) {
  const GpuWorld world = one_axis(ranks);
  std::vector<std::vector<std::byte>> out(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    Comm& comm = rank.open().on(Axis::world, Lane::compute);
    const Tensor t = rank.take(dtype, n);
    fill(t, rank.rank());
    comm.all_reduce(rank.lane(), t);
    rank.drain();
    out[size_t(rank.rank())].assign(t.data, t.data + t.bytes());
  });
  return out;
}

void refused(const std::string& text, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    expect(contains(e.what(), text), e.what());
    return;
  }
  throw std::logic_error("not refused: " + text);
}

}  // namespace

TEST_CASE("every operation gives the reference, sums of floating point within rounding: dtypes, ranks, odd sizes") {
  for (const int n : {2, 3, 7}) {
    const GpuWorld world = one_axis(n);
    run_ranks(n, [&](Exchange& exchange) {
      GpuRank rank(exchange, world);
      test_operations(rank, rank.open().on(Axis::world, Lane::compute), {1, 65, 515});
    });
  }
  REQUIRE(fakenccl::counts().alive == 0);
  REQUIRE(fakenccl::counts().registered == 0);
  REQUIRE(fakenccl::counts().answered_in_progress > 0);
}

TEST_CASE("bits repeat from run to run and from rank to rank; in another order they are within rounding") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto first = sums(5, dtype, 1000);
    for (const auto& of_rank : first) REQUIRE(of_rank == first[0]);
    REQUIRE(sums(5, dtype, 1000) == first);
    setenv("FAKENCCL_RANDOM_ORDER", "7", 1);
    auto other = sums(5, dtype, 1000);
    unsetenv("FAKENCCL_RANDOM_ORDER");
    REQUIRE(other != first);
    auto wanted = first[0];
    const Tensor a = make_tensor(wanted.data(), dtype, {1000}), b = make_tensor(other[3].data(), dtype, {1000});
    expect_equal(
        b, "a sum in random order", [&](int64_t i) { return get(a, i); }, slack_of(dtype, 5));
  }
}

TEST_CASE("a group of one makes no call of NCCL: in place it does nothing, otherwise it copies") {
  auto& copy = Kernel<Copy>::on(DeviceKind::cuda);
  const auto before = copy;
  copy.run = [](Stream& s, const void* args) {
    const Copy& c = *static_cast<const Copy*>(args);
    cudaMemcpyAsync(c.to.data, c.from.data, c.to.bytes(), cudaMemcpyDefault, static_cast<cudaStream_t>(s.native()));
  };
  const GpuWorld world{.shape = {.dp = 2}};
  run_ranks(2, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    GpuGroups& groups = rank.open();
    const auto calls = [] { return std::pair(fakenccl::counts().collectives, fakenccl::counts().messages); };
    exchange.all_gather("open");
    const auto at_first = calls();
    Comm& alone = groups.on(Axis::tp, Lane::compute);
    expect(alone.size() == 1 && alone.rank() == 0, "tp has one rank");
    const Tensor a = rank.take(DType::f32, 100), b = rank.take(DType::f32, 100);
    fill(a, 1);
    alone.all_gather(rank.lane(), a, a);
    alone.reduce_scatter(rank.lane(), a, a);
    alone.all_reduce(rank.lane(), a);
    alone.barrier(rank.lane());
    alone.all_gather(rank.lane(), a, b);
    rank.drain();
    for (const Tensor& t : {a, b})
      expect_equal(t, "what a group of one leaves",
                   [](int64_t i) { return rounded(DType::f32, value(DType::f32, 1, i)); });
    expect(calls() == at_first, "a group of one called NCCL");
    exchange.all_gather("over");
  });
  copy = before;
}

TEST_CASE("a world of one opens nothing") {
  const GpuWorld world = one_axis(1);
  const int before = fakenccl::counts().collectives;
  SoloExchange exchange;
  GpuRank rank(exchange, world);
  GpuGroups& groups = rank.open();
  REQUIRE(groups.on(Axis::world, Lane::compute).size() == 1);
  REQUIRE_NOTHROW(groups.check_alive());
  REQUIRE(groups.notes().empty());
  REQUIRE(fakenccl::counts().alive == 0);
  REQUIRE(fakenccl::counts().collectives == before);
}

TEST_CASE("groups of a mesh have the members that the plan says, each its own communicator") {
  const GpuWorld world{.shape = {.dp = 2, .zero = 1}, .tp = 2};
  run_ranks(4, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    GpuGroups& groups = rank.open();
    for (const auto& [axis, lane] :
         {std::pair(Axis::tp, Lane::compute), std::pair(Axis::tp, Lane::reduce), std::pair(Axis::shard, Lane::gather),
          std::pair(Axis::shard, Lane::reduce), std::pair(Axis::world, Lane::compute)}) {
      const GroupName group = group_of(rank.mesh(), axis);
      Comm& comm = groups.on(axis, lane);
      expect(comm.rank() == group.rank && comm.size() == group.size(), "wrong place in " + group.key);
      const Tensor who = rank.take(DType::i32, group.size());
      const Tensor mine = flat_part(who, group.rank, group.rank + 1);
      *data_as<int32_t>(mine) = rank.rank();
      comm.all_gather(rank.lane(lane), mine, who);
      rank.drain();
      for (int i = 0; i < group.size(); ++i)
        expect(data_as<int32_t>(who)[i] == group.members[size_t(i)], "wrong member of " + group.key);
    }
    Comm &first = groups.on(Axis::shard, Lane::gather), &second = groups.on(Axis::shard, Lane::reduce);
    expect(&first != &second, "two lanes share a communicator");
    first.barrier(rank.lane(Lane::gather));
    second.barrier(rank.lane(Lane::reduce));
    rank.drain();
    expect(groups.on(Axis::dp, Lane::compute).size() == 2, "a group without a communicator has a size");
    refused("no", [&] { groups.on(Axis::dp, Lane::copy).all_reduce(rank.lane(Lane::copy), rank.take(DType::f32, 8)); });
    exchange.all_gather("over");
  });
  REQUIRE(fakenccl::counts().alive == 0);
}

TEST_CASE("pipes carry both kinds in both directions, at once") {
  const GpuWorld world{
      .shape = {.schedule = PipelineKind::interleaved, .pp = 3, .dp = 2, .chunks = 2, .layers = 6, .microbatches = 6}};
  run_ranks(6, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    GpuGroups& groups = rank.open();
    const int stage = rank.mesh().stage, up = (stage + 1) % 3, down = (stage + 2) % 3;
    constexpr int64_t n = 500;
    std::vector<std::pair<Tensor, int>> received;  // and what its sender filled it with
    for (int turn = 0; turn < 3; ++turn)
      for (const bool gradient : {false, true}) {
        const int to = gradient ? down : up, from = gradient ? up : down;
        const auto tag = [&](int sender) { return 100 * turn + 10 * sender + int(gradient); };
        const Tensor out = rank.take(DType::bf16, n), in = rank.take(DType::bf16, n);
        fill(out, tag(stage));
        Comm &sends = groups.pipe(stage, to, gradient), &receives = groups.pipe(from, stage, gradient);
        expect(sends.rank() == 0 && receives.rank() == 1 && sends.size() == 2, "wrong ends of a pipe");
        sends.send(rank.lane(pipe_lane(true, gradient)), out, 1);
        receives.recv(rank.lane(pipe_lane(false, gradient)), in, 0);
        received.emplace_back(in, tag(from));
      }
    rank.drain();
    for (const auto& [t, tag] : received)
      expect_equal(t, "message",
                   [&, tag = tag](int64_t i) { return rounded(DType::bf16, value(DType::bf16, tag, i)); });
    expect(rank.traffic().bytes(Axis::pp, Lane::recv_act) == 3 * n * 2, "wrong count of received bytes");
    expect(rank.traffic().bytes(Axis::pp, Lane::send_act) == 0, "a sent byte is counted where it is received");
    exchange.all_gather("over");
  });
}

TEST_CASE("splits are few: groups of the same ranks on a lane share, and so do pairs of stages without a common one") {
  // All of dp is all of the world.
  const GpuWorld flat{.shape = {.dp = 4, .zero = 1}};
  const NcclPlan plan = plan_nccl(flat.mesh(1), flat.stages, 1);
  REQUIRE(plan.splits.size() == 2);  // shard on gather, shard on reduce
  REQUIRE(plan.axes.at({Axis::world, Lane::compute}) == NcclPlan::kWorld);
  REQUIRE_FALSE(plan.axes.contains({Axis::replica, Lane::reduce}));

  const GpuWorld pipeline{.shape = {.pp = 8, .dp = 1, .layers = 8, .microbatches = 8, .tied = true}};
  std::vector<NcclPlan> plans;
  for (int r = 0; r < 8; ++r) plans.push_back(plan_nccl(pipeline.mesh(r), pipeline.stages, 0));
  REQUIRE(plans[0].pipes.size() == 14);
  REQUIRE(plans[0].splits.size() == 1 + 4);  // tied; even and odd pairs, both kinds
  for (size_t s = 0; s < plans[0].splits.size(); ++s)
    for (const NcclPlan& p : plans) {
      REQUIRE(p.splits.size() == plans[0].splits.size());
      REQUIRE(p.pipes == plans[0].pipes);
      for (const int member : p.splits[s].group.members)  // they know of each other
        REQUIRE(plans[size_t(member)].splits[s].group.members == p.splits[s].group.members);
    }
  REQUIRE(plans[3].splits[0].group.members.empty());  // holds no tied parameter
}

TEST_CASE("every axis and lane on which a plan communicates has a communicator") {
  int communicates = 0;
  for (const int zero : {0, 1, 2, 3})
    for (const int tp : {1, 2})
      for (const int pp : {1, 2}) {
        GpuWorld world{.shape = {.pp = pp, .dp = 4, .zero = zero, .layers = 4}, .tp = tp};
        if (zero > 0) world.spec.parallel.zero_shard = 2;
        const PlanRequest request{
            world.spec, world.model, world.size(), {{StepKind::train, 2, world.spec.data.seq_len}}};
        const std::vector<Program> programs = make_programs(request);
        for (size_t r = 0; r < programs.size(); ++r) {
          const Mesh mesh = world.mesh(int(r));
          const NcclPlan plan = plan_nccl(mesh, world.stages, zero);
          const auto needs = [&](Axis axis, Lane lane) {
            const int size = group_of(mesh, world.stages, axis).size();
            communicates += size > 1;
            INFO(name_of(axis) << " on " << name_of(lane) << ", zero " << zero << ", tp " << tp << ", pp " << pp);
            REQUIRE((size == 1 || plan.axes.contains({axis, lane})));
          };
          for (const Instr& i : programs[r].plans[0].second.code) {
            const Bucket* bucket = i.bucket < 0 ? nullptr : &programs[r].buckets[size_t(i.bucket)];
            switch (i.verb) {  // as the engine does
              case Verb::forward: needs(Axis::tp, i.lane); break;
              case Verb::gather: needs(bucket->shard, i.lane); break;
              case Verb::reduce:
                needs(Axis::tp, i.lane);
                needs(Axis::kv, i.lane);
                if (zero == 0) needs(Axis::dp, i.lane);
                else needs(bucket->shard, i.lane), needs(bucket->replica, i.lane);
                break;
              case Verb::tie: needs(Axis::tied, i.lane); break;
              case Verb::agree: needs(Axis::world, i.lane); break;
              case Verb::send_act: REQUIRE(plan.pipes.contains({mesh.stage, i.peer, false})); break;
              case Verb::recv_grad: REQUIRE(plan.pipes.contains({i.peer, mesh.stage, true})); break;
              default: break;
            }
          }
        }
      }
  REQUIRE(communicates > 100);
}

TEST_CASE("moved bytes are the closed forms") {
  const GpuWorld world = one_axis(3);
  run_ranks(3, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    Comm& comm = rank.open().on(Axis::world, Lane::compute);
    const Tensor full = rank.take(DType::f32, 300), part = flat_part(full, 100 * rank.rank(), 100 * rank.rank() + 100);
    const auto moved = [&] { return rank.traffic().bytes(Axis::world, Lane::compute); };
    expect(moved() == 0, "opening counts nothing");
    comm.all_gather(rank.lane(), part, full);
    expect(moved() == moved_by_gather(1200, 3), "all_gather");
    comm.reduce_scatter(rank.lane(), full, part);
    expect(moved() == moved_by_gather(1200, 3) + moved_by_scatter(1200, 3), "reduce_scatter");
    const int64_t before = moved();
    comm.all_reduce(rank.lane(), full);
    expect(moved() - before == moved_by_all_reduce(300, DType::f32, 3, rank.rank()), "all_reduce");
    rank.drain();
    exchange.all_gather("over");
  });
}

TEST_CASE("what NCCL cannot do is refused when it is issued") {
  const GpuWorld world = one_axis(2);
  run_ranks(2, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    Comm& comm = rank.open().on(Axis::world, Lane::compute);
    const Tensor t = rank.take(DType::f32, 64);
    Tensor strided = reshaped(t, {8, 8});
    strided.row_stride = 8;
    strided.shape = {8, 4};
    refused("strided", [&] { comm.all_reduce(rank.lane(), strided); });
    refused("2 ranks", [&] { comm.all_gather(rank.lane(), t, rank.take(DType::f32, 100)); });
    refused("overlaps", [&] { comm.all_gather(rank.lane(), flat_part(t, 1, 33), t); });
    refused("another rank", [&] { comm.send(rank.lane(), t, rank.rank()); });
    refused("reduction of u8", [&] { comm.all_reduce(rank.lane(), rank.take(DType::u8, 8)); });
    refused("not built yet", [&] { comm.all_to_all_v(rank.lane(), t, t, t, t, 1); });
    exchange.all_gather("over");
  });
}

TEST_CASE("a library without registration is used, and said once") {
  auto& table = fakenccl::table();
  const auto before = table;
  table.ncclCommRegister = nullptr;
  const GpuWorld world{.shape = {.dp = 2, .zero = 1}};
  run_ranks(2, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    GpuGroups& groups = rank.open();
    expect(groups.notes().size() == 1 && contains(groups.notes()[0], "cannot register buffers"), "no note");
    const Tensor t = rank.take(DType::i32, 10);
    fill(t, rank.rank());
    groups.on(Axis::shard, Lane::reduce).all_reduce(rank.lane(Lane::reduce), t);
    rank.drain();
    expect_equal(t, "all_reduce", [&](int64_t i) { return reduced(DType::i32, 2, i, Comm::Reduce::sum); });
  });
  table = before;
}
