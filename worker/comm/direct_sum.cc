#include "worker/comm/direct_sum.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/comm/shard.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

using Pending = std::unique_ptr<PendingTransfer>;

// A shard's sum begins with the rank behind its place and ends with the one at its place, as on a ring.
void SumShard(const std::vector<at::Tensor>& of_ranks, int place, at::Tensor& sums) {
  const int size = static_cast<int>(of_ranks.size());
  const Shard shard = ShardOf(sums.numel(), place, size);
  at::Tensor sum = sums.narrow(0, shard.begin, shard.size());
  for (int step = 1; step <= size; ++step) {
    const at::Tensor& next = of_ranks[static_cast<size_t>((place + step) % size)];
    const at::Tensor part = next.narrow(0, shard.begin, shard.size());
    step == 1 ? sum.copy_(part) : sum.add_(part);
  }
}

void Sum(const std::vector<at::Tensor>& of_ranks, const at::Tensor& result) {
  at::Tensor sums = at::empty_like(result);
  for (int place = 0; place < static_cast<int>(of_ranks.size()); ++place) SumShard(of_ranks, place, sums);
  result.copy_(sums);
}

absl::Status Exchange(const std::vector<at::Tensor>& of_ranks, const Mesh& mesh) {
  std::vector<Pending> transfers;
  for (int peer = 0; peer < mesh.size; ++peer) {
    if (peer == mesh.position) continue;
    PENSTOCK_ASSIGN_OR_RETURN(transfers.emplace_back(),
                              mesh.receive(peer, of_ranks[static_cast<size_t>(peer)]));
  }
  const at::Tensor& own = of_ranks[static_cast<size_t>(mesh.position)];
  // The next rank first: not all send to the same one at a time.
  for (int step = 1; step < mesh.size; ++step) {
    PENSTOCK_ASSIGN_OR_RETURN(transfers.emplace_back(), mesh.send((mesh.position + step) % mesh.size, own));
  }
  for (const Pending& transfer : transfers) PENSTOCK_RETURN_IF_ERROR(transfer->Wait());
  return absl::OkStatus();
}

}  // namespace

absl::Status DirectAllReduceSum(const at::Tensor& tensor, const Mesh& mesh) {
  std::vector<at::Tensor> of_ranks(static_cast<size_t>(mesh.size));
  PENSTOCK_RETURN_IF_ERROR(RunTorch("all-reduce", [&] {
    for (at::Tensor& of_rank : of_ranks) of_rank = at::empty_like(tensor);
    of_ranks[static_cast<size_t>(mesh.position)] = tensor;
  }));
  PENSTOCK_RETURN_IF_ERROR(Exchange(of_ranks, mesh));
  return RunTorch("all-reduce", [&] { Sum(of_ranks, tensor); });
}

}  // namespace penstock::worker
