// What Gloo and NCCL have in common: checks, finding the group of a transfer, buckets, and an abort that ends
// in seconds whatever the transport does.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/comm/cancellation.h"
#include "worker/comm/communicator.h"
#include "worker/comm/groups.h"

namespace penstock::worker {

enum class Direction : uint8_t { kSend, kReceive };

class GroupedCommunicator : public Communicator {
 public:
  // `groups`: those that were joined (GroupsToJoin).
  GroupedCommunicator(uint32_t rank, std::vector<RankGroup> groups);

  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor& tensor, uint32_t peer,
                                                        uint32_t sequence) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t peer,
                                                           uint32_t sequence) override;
  absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const RankGroup& group) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllReduceSum(const std::vector<at::Tensor>& tensors,
                                                                     const RankGroup& group) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduceScatterSum(
      const std::vector<at::Tensor>& tensors, const RankGroup& group) override;
  absl::Status AllGather(const std::vector<at::Tensor>& tensors, const RankGroup& group) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllToAll(const std::vector<at::Tensor>& sent,
                                                                 const std::vector<at::Tensor>& received,
                                                                 const RankGroup& group) override;
  void Abort(const std::string& reason) override;
  absl::Status status() const override { return cancellation_->status(); }

 protected:
  uint32_t rank() const { return rank_; }
  const std::shared_ptr<Cancellation>& cancellation() const { return cancellation_; }

 private:
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Exchange(Direction direction, const at::Tensor& tensor,
                                                            uint32_t peer, uint32_t sequence);
  // Whether others, or a transport, have a part in its collectives.
  bool IsJoined(const RankGroup& group) const;
  // That a collective, such as "all-reduce", over the group can begin.
  absl::Status CheckCollective(absl::string_view what, const RankGroup& group) const;
  absl::Status CheckFlat(absl::string_view what, const std::vector<at::Tensor>& tensors,
                         const RankGroup& group) const;
  // Starts the collective for each of the tensors.
  using StartOne = std::function<absl::StatusOr<std::unique_ptr<PendingTransfer>>(const at::Tensor& flat)>;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartEach(absl::string_view what,
                                                             const std::vector<at::Tensor>& tensors,
                                                             const RankGroup& group,
                                                             const StartOne& start) const;

  // `group` holds both this rank and `peer`; `tensor` is contiguous.
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> Start(Direction direction, const RankGroup& group,
                                                                 uint32_t peer, const at::Tensor& tensor,
                                                                 uint32_t sequence) = 0;
  // `flat`: one dimension, contiguous, not empty.
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduce(const at::Tensor& flat,
                                                                       const RankGroup& group) = 0;
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduceScatter(const at::Tensor& flat,
                                                                              const RankGroup& group) = 0;
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> StartGather(const at::Tensor& flat,
                                                                       const RankGroup& group) = 0;
  // A tensor for each rank of the group, all as those of StartReduce, or empty; this rank's own too.
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> StartExchange(
      const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received,
      const RankGroup& group) = 0;
  // What ends the calls of the groups, after the cancellation. It may block: it holds what it uses, and
  // outlives the communicator if need be. Asked for once, from any thread.
  virtual std::function<void()> GroupAbort() { return {}; }

  const uint32_t rank_;
  const std::vector<RankGroup> groups_;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
};

// "sending to rank 3", "receiving from rank 3"
std::string Describe(Direction direction, uint32_t peer);

}  // namespace penstock::worker
