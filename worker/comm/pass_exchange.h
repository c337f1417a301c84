// What the passes of a stage exchange over a transport: each of the calls of StageGroup is one exchange, in
// which every rank of a group sends something to every other one. One code for Gloo and NCCL.
//
//   PassExchange passes(place, {.tensors = {.position = place.tensor, .size = place.tensors, .start = ...},
//                               .contexts = ...});
//   const at::Tensor gathered = passes.GatherRows(own, rows);
//
// What is summed was sent as it is and is added up by the rank that wants it, in the order of the ranks, in
// float32 or wider: the bits depend neither on the transport nor on who came first. Over Gloo it is also the
// quickest way.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/comm/communicator.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

// Ranks that exchange, of which this is the one at `position`.
struct ExchangeGroup {
  // Of each rank of the group in its order: what goes there, and where to put what comes from there. Tensors
  // are contiguous; those of this rank itself are left alone, and nothing is sent where one has no elements,
  // at either end. It has begun when this returns; exchanges go on in the order in which they have begun.
  // Possible errors, also of Wait: UNAVAILABLE (names the peer or the group), CANCELLED.
  using Start = std::function<absl::StatusOr<std::unique_ptr<PendingTransfer>>(
      const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received)>;

  int position = 0;
  int size = 1;
  // Not of a group of one.
  Start start = {};

  // Begins one and waits for it.
  absl::Status Exchange(const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received) const;
};

// Those of a rank: the tensor ranks of its context rank, the context ranks of its tensor rank, and those that
// divide the experts with it.
struct ExchangeGroups {
  ExchangeGroup tensors = {};
  ExchangeGroup contexts = {};
  ExchangeGroup experts = {};
};

// One thread at a time.
class PassExchange : public StageGroup {
 public:
  PassExchange(const GroupPlace& place, ExchangeGroups groups)
      : place_(place),
        tensors_(std::move(groups.tensors)),
        contexts_(std::move(groups.contexts)),
        experts_(std::move(groups.experts)) {}

  GroupPlace place() const override { return place_; }
  at::Tensor GatherRows(const at::Tensor& own, const ListedRows& rows) override;
  at::Tensor SumRows(const at::Tensor& partial, const ListedRows& rows) override;
  void SumOverTensorRanks(at::Tensor& values) override;
  void MaxOverTensorRanks(at::Tensor& values) override;
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override;
  std::unique_ptr<PendingRows> StartRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                         const std::vector<int64_t>& received) override;
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                               const std::vector<int64_t>& received) override;
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override;
  int64_t TakeWaitedNs() override { return std::exchange(waited_ns_, 0); }
  absl::Status status() const override { return status_; }

 private:
  // Of what the tensor ranks have of the same elements, in their order: one of them all.
  using Merge = at::Tensor (*)(const std::vector<at::Tensor>& of_ranks);

  // Runs `body`, which throws what LibTorch throws, unless there was an error before. Whether it went well.
  bool Attempt(absl::string_view what, const std::function<absl::Status()>& body);
  // Adds what `call`, which blocks, takes to waited_ns_.
  template <typename Call>
  auto Waiting(const Call& call);
  absl::Status ExchangeOverTensorRanks(const std::vector<at::Tensor>& sent,
                                       const std::vector<at::Tensor>& received);
  // The shards of `partial` of all tensor ranks that are this rank's, merged.
  absl::Status MergeShards(const at::Tensor& partial, const ListedRows& rows, Merge merge,
                           at::Tensor& result);
  // Fills in the shards of the others; this rank's is in its place.
  absl::Status GatherShards(const at::Tensor& own, const at::Tensor& all, const ListedRows& rows);
  // In place, on all tensor ranks.
  void MergeOverTensorRanks(absl::string_view what, Merge merge, at::Tensor& values);
  absl::Status MergeFlat(Merge merge, const at::Tensor& flat);
  class Rows;
  std::unique_ptr<PendingRows> StartOver(const ExchangeGroup& group, absl::string_view what,
                                         const at::Tensor& rows, const std::vector<int64_t>& sent,
                                         const std::vector<int64_t>& received);

  const GroupPlace place_;
  const ExchangeGroup tensors_;
  const ExchangeGroup contexts_;
  const ExchangeGroup experts_;
  absl::Status status_;
  int64_t waited_ns_ = 0;
};

}  // namespace penstock::worker
