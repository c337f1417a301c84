// Communicator over Gloo: one process group for each group of ranks, sends and receives told apart by tags.
#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/comm/buckets.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo_group.h"
#include "worker/comm/ring.h"
#include "worker/comm/transfer.h"

namespace penstock::worker {
namespace {

using Group = c10::intrusive_ptr<c10d::Backend>;

constexpr int64_t kBucketBytes = int64_t{32} << 20;
// Transfers have their sequence number as tag. Messages of one tag arrive in the order in which they were
// sent, which is all that a ring and the next iteration need.
constexpr uint32_t kRingTag = uint32_t{1} << 30;

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(const CommunicatorOptions& options, std::map<RankGroup, Group> groups)
      : rank_(options.rank), timeout_(options.timeout), groups_(std::move(groups)) {}

  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor& tensor, uint32_t peer,
                                                        uint32_t sequence) override {
    PENSTOCK_RETURN_IF_ERROR(CheckTensor(tensor));
    PENSTOCK_ASSIGN_OR_RETURN(const RankGroup* group, GroupWith(peer));
    return Start(*group, peer, tensor, sequence, /*send=*/true);
  }

  absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t peer,
                                                           uint32_t sequence) override {
    PENSTOCK_RETURN_IF_ERROR(CheckTensor(tensor));
    PENSTOCK_ASSIGN_OR_RETURN(const RankGroup* group, GroupWith(peer));
    return Start(*group, peer, tensor, sequence, /*send=*/false);
  }

  absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const RankGroup& group) override {
    PENSTOCK_RETURN_IF_ERROR(cancellation_->status());
    if (group.size() == 1 && group[0] == rank_) return absl::OkStatus();
    if (!groups_.contains(group)) {
      return absl::InvalidArgumentError(
          absl::StrCat("all-reduce over ranks ", Describe(group), ": not a group of the options"));
    }
    return ReduceInBuckets(tensors, kBucketBytes,
                           [&](const at::Tensor& flat) { return Reduce(flat, group); });
  }

  void Abort(const std::string& reason) override { cancellation_->Cancel(reason); }

 private:
  static absl::Status CheckTensor(const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_contiguous()) return absl::OkStatus();
    return absl::InvalidArgumentError("transfer: the tensor must be defined and contiguous");
  }

  absl::StatusOr<const RankGroup*> GroupWith(uint32_t peer) const {
    for (const auto& [group, _] : groups_) {
      if (peer != rank_ && PositionIn(group, peer)) return &group;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("transfer between rank ", rank_, " and rank ", peer, ": they share no group"));
  }

  absl::StatusOr<std::unique_ptr<PendingTransfer>> Start(const RankGroup& group, uint32_t peer,
                                                         const at::Tensor& tensor, uint32_t tag, bool send) {
    c10d::Backend& backend = *groups_.at(group);
    const int position = *PositionIn(group, peer);
    std::vector<at::Tensor> tensors = {tensor.detach()};
    return StartTransfer(absl::StrCat(send ? "sending to rank " : "receiving from rank ", peer), tensor,
                         cancellation_, timeout_, [&] {
                           return send ? backend.send(tensors, position, static_cast<int>(tag))
                                       : backend.recv(tensors, position, static_cast<int>(tag));
                         });
  }

  absl::Status Reduce(const at::Tensor& flat, const RankGroup& group) {
    const int size = static_cast<int>(group.size());
    const int position = *PositionIn(group, rank_);
    const uint32_t next = group[static_cast<size_t>((position + 1) % size)];
    const uint32_t previous = group[static_cast<size_t>((position + size - 1) % size)];
    const RingLinks links{
        .send = [&](const at::Tensor& chunk) { return Start(group, next, chunk, kRingTag, /*send=*/true); },
        .receive =
            [&](const at::Tensor& chunk) { return Start(group, previous, chunk, kRingTag, /*send=*/false); }};
    return RingAllReduceSum(flat, position, size, links);
  }

  const uint32_t rank_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  const std::map<RankGroup, Group> groups_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CommunicatorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<RankGroup> groups, GroupsToJoin(options));
  std::map<RankGroup, Group> joined;
  if (!groups.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const StoreClient store, ConnectStore(options));
    for (const RankGroup& group : groups) {
      PENSTOCK_ASSIGN_OR_RETURN(joined[group], JoinGlooGroup(options, store, group));
    }
  }
  return std::make_unique<GlooCommunicator>(options, std::move(joined));
}

}  // namespace penstock::worker
