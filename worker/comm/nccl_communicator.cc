// Communicator over NCCL: for each group of ranks one process group a direction, so that activations and
// gradients, which flow against each other, never queue on one stream, and one for reductions.
//
// Waits make the current CUDA stream wait; they do not block the host. A lost peer shows as silence: the
// planner's heartbeats notice it, and Abort ends NCCL's kernels. NCCL connects two ranks at their first
// transfer.
#include <ATen/core/Tensor.h>

#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/comm/communicator.h"
#include "worker/comm/grouped_communicator.h"
#include "worker/comm/store.h"
#include "worker/comm/transfer.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

using NcclGroup = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

struct NcclGroups {
  // From a lower position in the group to a higher one, and back.
  NcclGroup down;
  NcclGroup up;
  NcclGroup reduce;
};

using JoinedGroups = std::map<RankGroup, NcclGroups>;

class NcclCommunicator : public GroupedCommunicator {
 public:
  NcclCommunicator(uint32_t rank, std::vector<RankGroup> groups, JoinedGroups joined)
      : GroupedCommunicator(rank, std::move(groups)), joined_(std::move(joined)) {}

 private:
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Start(Direction direction, const RankGroup& group,
                                                         uint32_t peer, const at::Tensor& tensor,
                                                         uint32_t) override {
    const int position = *PositionIn(group, peer);
    const bool peer_is_higher = position > *PositionIn(group, rank());
    const bool down = (direction == Direction::kSend) == peer_is_higher;
    const NcclGroups& groups = joined_.at(group);
    c10d::ProcessGroupNCCL& backend = down ? *groups.down : *groups.up;
    std::vector<at::Tensor> tensors = {tensor};
    return StartTransfer(Describe(direction, peer), tensor, cancellation(), kNoTimeout, [&] {
      return direction == Direction::kSend ? backend.send(tensors, position, /*tag=*/0)
                                           : backend.recv(tensors, position, /*tag=*/0);
    });
  }

  absl::Status Reduce(const at::Tensor& flat, const RankGroup& group) override {
    std::vector<at::Tensor> tensors = {flat};
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::unique_ptr<PendingTransfer> transfer,
        StartTransfer(absl::StrCat("all-reduce over ranks ", Describe(group)), flat, cancellation(),
                      kNoTimeout, [&] { return joined_.at(group).reduce->allreduce(tensors); }));
    return transfer->Wait();
  }

  // What an abort has to say is of no interest: every call answers CANCELLED from now on.
  void AbortGroups() override {
    for (const auto& [_, groups] : joined_) {
      for (const NcclGroup& group : {groups.down, groups.up, groups.reduce}) {
        RunTorch("abort", [&] { group->abort(); }).IgnoreError();
      }
    }
  }

  const JoinedGroups joined_;
};

NcclGroup Join(const CommunicatorOptions& options, const StoreClient& store, const std::string& purpose,
               const RankGroup& group) {
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  nccl_options->timeout = options.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(GroupStore(store, purpose, group),
                                                     *PositionIn(group, options.rank),
                                                     static_cast<int>(group.size()), nccl_options);
}

NcclGroups JoinAll(const CommunicatorOptions& options, const StoreClient& store, const RankGroup& group) {
  return {Join(options, store, "nccl down", group), Join(options, store, "nccl up", group),
          Join(options, store, "nccl reduce", group)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CommunicatorOptions& options) {
  if (!options.device.is_cuda()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: ", options.device.str(), ", but NCCL needs a CUDA device"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<RankGroup> groups, GroupsToJoin(options));
  JoinedGroups joined;
  if (!groups.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const StoreClient store, ConnectStore(options));
    for (const RankGroup& group : groups) {
      PENSTOCK_ASSIGN_OR_RETURN(joined[group],
                                CallTorch(absl::StrCat("joining the group of ranks ", Describe(group)),
                                          [&] { return JoinAll(options, store, group); }));
    }
  }
  return std::make_unique<NcclCommunicator>(options.rank, std::move(groups), std::move(joined));
}

}  // namespace penstock::worker
