#include "tests/integration/streams/recorded_communicator.h"

#include <ATen/ops/empty.h>

#include <numeric>

#include "worker/comm/shard.h"

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

// Tensors have shapes, and no values.
class RecordedStageGroup : public StageGroup {
 public:
  RecordedStageGroup(RecordedStreams* streams, const GroupPlace& place) : streams_(*streams), place_(place) {}

  GroupPlace place() const override { return place_; }
  at::Tensor GatherRows(const at::Tensor& own, const ListedRows& rows) override {
    return Exchanged(own, rows.size());
  }
  at::Tensor SumRows(const at::Tensor& partial, const ListedRows& rows) override {
    return Exchanged(partial, ShardOf(rows, place_.tensor, place_.tensors).size());
  }
  void SumOverTensorRanks(at::Tensor&) override { streams_.Record(Call::kExchange); }
  void MaxOverTensorRanks(at::Tensor&) override { streams_.Record(Call::kExchange); }
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>&,
                          const std::vector<int64_t>& received) override {
    return Exchanged(rows, std::accumulate(received.begin(), received.end(), int64_t{0}));
  }
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>&,
                                               const std::vector<int64_t>& received) override {
    return std::make_unique<ArrivedRows>(
        Exchanged(rows, std::accumulate(received.begin(), received.end(), int64_t{0})));
  }
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override {
    return Exchanged(counts, counts.size(0));
  }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  at::Tensor Exchanged(const at::Tensor& rows, int64_t count) {
    streams_.Record(Call::kExchange);
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = count;
    return at::empty(shape, rows.options());
  }

  RecordedStreams& streams_;
  const GroupPlace place_;
};

std::unique_ptr<StageGroup> GroupAt(RecordedStreams* streams, const GroupPlace& place) {
  return place.ranks() > 1 ? std::make_unique<RecordedStageGroup>(streams, place) : nullptr;
}

}  // namespace

RecordedCommunicator::RecordedCommunicator(RecordedStreams* streams, const GroupPlace& place)
    : streams_(*streams), group_(GroupAt(streams, place)) {}

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

Pending RecordedCommunicator::StartAllToAll(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&,
                                            const std::vector<uint32_t>&) {
  return Start();
}

absl::Status RecordedCommunicator::AllGather(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) {
  return Start()->Wait();
}

}  // namespace penstock::worker
