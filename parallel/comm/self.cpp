#include "parallel/comm/self.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"

namespace trainer {
namespace {

void copy(Stream& stream, const Tensor& to, const Tensor& from) {
  if (to.data != from.data) launch(stream, Copy{to, from});
}

}  // namespace

void SelfComm::all_gather(Stream& stream, Tensor shard, Tensor full) { copy(stream, full, shard); }
void SelfComm::reduce_scatter(Stream& stream, Tensor full, Tensor shard) { copy(stream, shard, full); }
void SelfComm::all_to_all_v(Stream&, Tensor, Tensor, Tensor, Tensor, int64_t) {
  fail(Exit::rank, "[self] all_to_all_v: expert parallelism is not built yet");
}
void SelfComm::send(Stream&, Tensor, int to) { fail(Exit::rank, "[self] send to {}: one rank has no peer", to); }
void SelfComm::recv(Stream&, Tensor, int from) {
  fail(Exit::rank, "[self] receive from {}: one rank has no peer", from);
}

Comm& SelfGroups::pipe(int from, int to, bool) {
  fail(Exit::rank, "[self] pipe {} > {}: one rank has no peer", from, to);
}

}  // namespace trainer
