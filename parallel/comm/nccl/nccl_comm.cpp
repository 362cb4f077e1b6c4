#include "parallel/comm/nccl/nccl_comm.h"

#include "core/base/error.h"
#include "core/device/collective.h"
#include "parallel/comm/shm_reduce.h"

namespace trainer {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
    default: fail(Exit::rank, "[nccl] no collective moves {} yet", name_of(dtype));
  }
}

bool overlap(const Tensor& a, const Tensor& b) { return a.data < b.data + b.bytes() && b.data < a.data + a.bytes(); }

}  // namespace

NcclHandle& NcclComm::handle(const char* op) const {
  check(handle_, Exit::rank, "[nccl] {}: {}: the plan of communicators has none for this axis and lane", name_, op);
  return *handle_;
}
void NcclComm::check_tensor(const char* op, const Tensor& t) const {
  check(t.dense(), Exit::rank, "[nccl] {}: {}: wanted a dense tensor, found one with strided rows", name_, op);
}
void NcclComm::check_parts(const char* op, const Tensor& shard, const Tensor& full) const {
  check_tensor(op, shard);
  check_tensor(op, full);
  check(shard.dtype == full.dtype && full.elements() == size() * shard.elements(), Exit::rank,
        "[nccl] {}: {}: a shard of {} {} and a whole of {} {}, {} ranks", name_, op, shard.elements(),
        name_of(shard.dtype), full.elements(), name_of(full.dtype), size());
  check(shard.data == full.data + size_t(rank()) * shard.bytes() || !overlap(shard, full), Exit::rank,
        "[nccl] {}: {}: the shard overlaps another rank's slice", name_, op);
}

void NcclComm::issue(Stream& stream, void (NcclComm::*run)(cudaStream_t, const Call&), const Tensor& from,
                     const Tensor& to, Reduce reduce) {
  Call c;
  c.comm = this;
  c.run = run;
  c.from = from;
  c.to = to;
  c.reduce = reduce;
  const auto on_stream = [](Stream& s, const void* args) {
    const Call& c = *static_cast<const Call*>(args);
    (c.comm->*c.run)(static_cast<cudaStream_t>(s.native()), c);
  };
  stream.begin_account(int(axis_));
  stream.submit(on_stream, &c, sizeof c);
  stream.end_account(int(axis_));
}

void NcclComm::all_gather(Stream& stream, Tensor shard, Tensor full) {
  check_parts("all_gather", shard, full);
  issue(stream, &NcclComm::run_all_gather, shard, full);
}
void NcclComm::run_all_gather(cudaStream_t stream, const Call& c) {
  world_.call(handle("all_gather"), "all_gather", [&](ncclComm_t comm) {
    return world_.api().ncclAllGather(c.from.data, c.to.data, size_t(c.from.elements()), type_of(c.from.dtype), comm,
                                      stream);
  });
  count(moved_by_gather(int64_t(c.to.bytes()), size()));
}

void NcclComm::reduce_scatter(Stream& stream, Tensor full, Tensor shard) {
  check_parts("reduce_scatter", shard, full);
  check_reduces({Reduce::sum, full.dtype});
  issue(stream, &NcclComm::run_reduce_scatter, full, shard);
}
void NcclComm::run_reduce_scatter(cudaStream_t stream, const Call& c) {
  world_.call(handle("reduce_scatter"), "reduce_scatter", [&](ncclComm_t comm) {
    return world_.api().ncclReduceScatter(c.from.data, c.to.data, size_t(c.to.elements()), type_of(c.to.dtype), ncclSum,
                                          comm, stream);
  });
  count(moved_by_scatter(int64_t(c.from.bytes()), size()));
}

void NcclComm::all_reduce(Stream& stream, Tensor t, Reduce reduce) {
  check_tensor("all_reduce", t);
  check_reduces({reduce, t.dtype});
  issue(stream, &NcclComm::run_all_reduce, t, t, reduce);
}
void NcclComm::run_all_reduce(cudaStream_t stream, const Call& c) {
  world_.call(handle("all_reduce"), "all_reduce", [&](ncclComm_t comm) {
    return world_.api().ncclAllReduce(c.from.data, c.to.data, size_t(c.from.elements()), type_of(c.from.dtype),
                                      c.reduce == Reduce::max ? ncclMax : ncclSum, comm, stream);
  });
  count(moved_by_all_reduce(c.from.elements(), c.from.dtype, size(), rank()));
}

void NcclComm::barrier(Stream& stream) { issue(stream, &NcclComm::run_barrier); }
void NcclComm::run_barrier(cudaStream_t stream, const Call&) {
  int32_t* word = handle("barrier").word;
  world_.call(*handle_, "barrier", [&](ncclComm_t comm) {
    return world_.api().ncclAllReduce(word, word, 1, ncclInt32, ncclMax, comm, stream);
  });
}

void NcclComm::all_to_all_v(Stream&, Tensor, Tensor, Tensor, Tensor, int64_t) {
  fail(Exit::rank, "[nccl] {}: all_to_all_v: expert parallelism is not built yet", name_);
}

void NcclComm::send(Stream& stream, Tensor t, int to) { add_message(stream, {true, to, t}); }
void NcclComm::recv(Stream& stream, Tensor t, int from) { add_message(stream, {false, from, t}); }
void NcclComm::add_message(Stream& stream, const Message& m) {
  const char* op = m.sends ? "send" : "receive";
  check_tensor(op, m.tensor);
  check(m.peer >= 0 && m.peer < size() && m.peer != rank(), Exit::rank,
        "[nccl] {}: {}: wanted another rank of 0 to {}, found {}", name_, op, size() - 1, m.peer);
  messages_.push_back(m);
  if (!grouping_) end_group(stream);
}
void NcclComm::begin_group(Stream&) { grouping_ = true; }
void NcclComm::end_group(Stream& stream) {
  grouping_ = false;
  if (!messages_.empty()) issue(stream, &NcclComm::run_messages);
}
void NcclComm::run_messages(cudaStream_t stream, const Call&) {
  world_.call(handle("messages"), "messages", [&](ncclComm_t comm) { return give_messages(comm, stream); });
  for (const Message& m : messages_)
    if (!m.sends) count(int64_t(m.tensor.bytes()));
  messages_.clear();
}
ncclResult_t NcclComm::give_messages(ncclComm_t comm, cudaStream_t stream) const {
  const Nccl& api = world_.api();
  ncclResult_t first = api.ncclGroupStart();
  for (const Message& m : messages_) {
    const size_t n = size_t(m.tensor.elements());
    const ncclDataType_t type = type_of(m.tensor.dtype);
    const ncclResult_t r = m.sends ? api.ncclSend(m.tensor.data, n, type, m.peer, comm, stream)
                                   : api.ncclRecv(m.tensor.data, n, type, m.peer, comm, stream);
    if (first == ncclSuccess && r != ncclInProgress) first = r;
  }
  const ncclResult_t end = api.ncclGroupEnd();  // also after an error: the thread would stay in the group
  return first == ncclSuccess ? end : first;
}

void NcclComm::abort() noexcept {
  try {
    world_.abort(fmt::format("[nccl] {}: rank {} of it aborted", name_, rank()));
  } catch (...) { world_.abort("aborted"); }
}

}  // namespace trainer
