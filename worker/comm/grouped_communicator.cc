#include "worker/comm/grouped_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "worker/comm/bounded_call.h"
#include "worker/comm/buckets.h"
#include "worker/comm/pending_all.h"

namespace penstock::worker {
namespace {

// A message of this size takes far longer than starting it: larger tensors are not worth a copy.
constexpr int64_t kTogetherBytes = int64_t{1} << 20;
// NCCL's abort waits for kernels that may hang.
constexpr absl::Duration kAbortLimit = absl::Seconds(5);

}  // namespace

std::string Describe(Direction direction, uint32_t peer) {
  return absl::StrCat(direction == Direction::kSend ? "sending to rank " : "receiving from rank ", peer);
}

GroupedCommunicator::GroupedCommunicator(uint32_t rank, std::vector<RankGroup> groups)
    : rank_(rank), groups_(std::move(groups)) {}

absl::StatusOr<std::unique_ptr<PendingTransfer>> GroupedCommunicator::Send(const at::Tensor& tensor,
                                                                           uint32_t peer, uint32_t sequence) {
  return Exchange(Direction::kSend, tensor, peer, sequence);
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> GroupedCommunicator::Receive(const at::Tensor& tensor,
                                                                              uint32_t peer,
                                                                              uint32_t sequence) {
  return Exchange(Direction::kReceive, tensor, peer, sequence);
}

// Both ends know the same shared groups in the same order, so they choose the same one.
absl::StatusOr<std::unique_ptr<PendingTransfer>> GroupedCommunicator::Exchange(Direction direction,
                                                                               const at::Tensor& tensor,
                                                                               uint32_t peer,
                                                                               uint32_t sequence) {
  if (!tensor.defined() || !tensor.is_contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(direction, peer), ": the tensor must be defined and contiguous"));
  }
  if (tensor.numel() == 0) {
    PENSTOCK_RETURN_IF_ERROR(cancellation_->status());
    return std::make_unique<PendingAll>(std::vector<std::unique_ptr<PendingTransfer>>());
  }
  for (const RankGroup& group : groups_) {
    if (peer != rank_ && PositionIn(group, peer)) return Start(direction, group, peer, tensor, sequence);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(direction, peer), ": rank ", rank_, " shares no group with it"));
}

bool GroupedCommunicator::IsJoined(const RankGroup& group) const {
  return std::find(groups_.begin(), groups_.end(), group) != groups_.end();
}

absl::Status GroupedCommunicator::CheckCollective(absl::string_view what, const RankGroup& group) const {
  PENSTOCK_RETURN_IF_ERROR(cancellation_->status());
  if (group.size() == 1 && group[0] == rank_) return absl::OkStatus();
  if (IsJoined(group)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " over ranks ", Describe(group), ": not a group of the options"));
}

absl::Status GroupedCommunicator::CheckFlat(absl::string_view what, const std::vector<at::Tensor>& tensors,
                                            const RankGroup& group) const {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() == 1 && tensor.is_contiguous()) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, " over ranks ", Describe(group),
                                                   ": tensors must be contiguous and of one dimension"));
  }
  return CheckCollective(what, group);
}

absl::Status GroupedCommunicator::AllReduceSum(std::vector<at::Tensor>& tensors, const RankGroup& group) {
  PENSTOCK_RETURN_IF_ERROR(CheckCollective("all-reduce", group));
  if (!IsJoined(group)) return absl::OkStatus();
  return ReduceInBuckets(tensors, kTogetherBytes, [&](const at::Tensor& flat) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PendingTransfer> reduction, StartReduce(flat, group));
    return reduction->Wait();
  });
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> GroupedCommunicator::StartEach(
    absl::string_view what, const std::vector<at::Tensor>& tensors, const RankGroup& group,
    const StartOne& start) const {
  PENSTOCK_RETURN_IF_ERROR(CheckFlat(what, tensors, group));
  std::vector<std::unique_ptr<PendingTransfer>> started;
  for (const at::Tensor& tensor : tensors) {
    if (!IsJoined(group) || tensor.numel() == 0) continue;
    PENSTOCK_ASSIGN_OR_RETURN(started.emplace_back(), start(tensor));
  }
  return std::make_unique<PendingAll>(std::move(started));
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> GroupedCommunicator::StartAllReduceSum(
    const std::vector<at::Tensor>& tensors, const RankGroup& group) {
  return StartEach("all-reduce", tensors, group,
                   [&](const at::Tensor& flat) { return StartReduce(flat, group); });
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> GroupedCommunicator::StartReduceScatterSum(
    const std::vector<at::Tensor>& tensors, const RankGroup& group) {
  return StartEach("reduce-scatter", tensors, group,
                   [&](const at::Tensor& flat) { return StartReduceScatter(flat, group); });
}

absl::Status GroupedCommunicator::AllGather(const std::vector<at::Tensor>& tensors, const RankGroup& group) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PendingTransfer> gather,
                            StartEach("all-gather", tensors, group,
                                      [&](const at::Tensor& flat) { return StartGather(flat, group); }));
  return gather->Wait();
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> GroupedCommunicator::StartAllToAll(
    const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received, const RankGroup& group) {
  for (const auto* tensors : {&sent, &received}) {
    PENSTOCK_RETURN_IF_ERROR(CheckFlat("all-to-all", *tensors, group));
    if (tensors->size() == group.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("all-to-all over ranks ", worker::Describe(group), ": ",
                                                   tensors->size(), " tensors for ", group.size(), " ranks"));
  }
  if (!IsJoined(group)) return std::make_unique<PendingAll>(std::vector<std::unique_ptr<PendingTransfer>>());
  return StartExchange(sent, received, group);
}

void GroupedCommunicator::Abort(const std::string& reason) {
  if (!cancellation_->Begin(reason)) return;
  const bool ended = EndsWithin(kAbortLimit, [cancellation = cancellation_, groups = GroupAbort()] {
    cancellation->AbortPending();
    if (groups) groups();
  });
  if (ended) return;
  LogWarning("the transport's abort goes on by itself", {{"waited", absl::FormatDuration(kAbortLimit)}});
}

}  // namespace penstock::worker
