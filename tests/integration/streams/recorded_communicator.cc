#include "tests/integration/streams/recorded_communicator.h"

namespace penstock::worker {
namespace {

using Pending = absl::StatusOr<std::unique_ptr<PendingTransfer>>;

// As NCCL's: it has the entered stream wait, and the host go on.
class RecordedTransfer : public PendingTransfer {
 public:
  explicit RecordedTransfer(RecordedStreams* streams) : streams_(*streams) {}

  absl::Status Wait() override {
    streams_.Record(Call::kJoin);
    return absl::OkStatus();
  }

 private:
  RecordedStreams& streams_;
};

}  // namespace

std::unique_ptr<PendingTransfer> RecordedCommunicator::Start() {
  streams_.Record(Call::kStart);
  return std::make_unique<RecordedTransfer>(&streams_);
}

Pending RecordedCommunicator::Send(const at::Tensor&, uint32_t, uint32_t) { return Start(); }

Pending RecordedCommunicator::Receive(const at::Tensor&, uint32_t, uint32_t) { return Start(); }

absl::Status RecordedCommunicator::AllReduceSum(std::vector<at::Tensor>&, const std::vector<uint32_t>&) {
  return Start()->Wait();
}

Pending RecordedCommunicator::StartAllReduceSum(const std::vector<at::Tensor>&,
                                                const std::vector<uint32_t>&) {
  return Start();
}

Pending RecordedCommunicator::StartReduceScatterSum(const std::vector<at::Tensor>&,
                                                    const std::vector<uint32_t>&) {
  return Start();
}

absl::Status RecordedCommunicator::AllGather(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) {
  return Start()->Wait();
}

}  // namespace penstock::worker
