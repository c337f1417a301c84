// A communicator that moves nothing and writes down when something is started, and which stream waits for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/streams/recorded_streams.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

class RecordedCommunicator : public Communicator {
 public:
  // `streams` must outlive the communicator.
  explicit RecordedCommunicator(RecordedStreams* streams, const GroupPlace& place = {});

  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor&, uint32_t, uint32_t) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor&, uint32_t, uint32_t) override;
  absl::Status AllReduceSum(std::vector<at::Tensor>&, const std::vector<uint32_t>&) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllReduceSum(const std::vector<at::Tensor>&,
                                                                     const std::vector<uint32_t>&) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduceScatterSum(
      const std::vector<at::Tensor>&, const std::vector<uint32_t>&) override;
  absl::Status AllGather(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllToAll(const std::vector<at::Tensor>&,
                                                                 const std::vector<at::Tensor>&,
                                                                 const std::vector<uint32_t>&) override;
  StageGroup* StageGroupOf(size_t) override { return group_.get(); }
  void Abort(const std::string&) override {}

 private:
  std::unique_ptr<PendingTransfer> Start();

  RecordedStreams& streams_;
  const std::unique_ptr<StageGroup> group_;
};

}  // namespace penstock::worker
