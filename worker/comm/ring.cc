#include "worker/comm/ring.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/comm/shard.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Receives under way at once: one that is summed, and one that arrives meanwhile.
constexpr size_t kBuffers = 2;

using Pending = std::unique_ptr<PendingTransfer>;

// The shard at `index`, taken modulo the size of the ring.
at::Tensor ShardAt(const at::Tensor& tensor, int index, const Ring& ring) {
  const Shard shard = ShardOf(tensor.numel(), (index % ring.size + ring.size) % ring.size, ring.size);
  return tensor.narrow(0, shard.begin, shard.size());
}

// None for an empty shard: the neighbour's is then empty too.
std::vector<at::Tensor> SegmentsOf(const at::Tensor& shard, const Ring& ring) {
  const int64_t each = std::max<int64_t>(1, ring.segment_bytes / static_cast<int64_t>(shard.element_size()));
  std::vector<at::Tensor> segments;
  for (int64_t begin = 0; begin < shard.numel(); begin += each) {
    segments.push_back(shard.narrow(0, begin, std::min(each, shard.numel() - begin)));
  }
  return segments;
}

absl::Status WaitForAll(const std::vector<Pending>& transfers) {
  for (const Pending& transfer : transfers) PENSTOCK_RETURN_IF_ERROR(transfer->Wait());
  return absl::OkStatus();
}

absl::Status StartAll(const Ring::Start& start, const std::vector<at::Tensor>& segments,
                      std::vector<Pending>& transfers) {
  for (const at::Tensor& segment : segments) {
    PENSTOCK_ASSIGN_OR_RETURN(Pending transfer, start(segment));
    transfers.push_back(std::move(transfer));
  }
  return absl::OkStatus();
}

// Receives segments, in order, and adds each to its place while the next one arrives.
class SummingReceiver {
 public:
  SummingReceiver(const Ring& ring, std::vector<at::Tensor> segments)
      : ring_(ring), segments_(std::move(segments)) {}

  // `scratch`: as large as the largest segment.
  absl::Status Start(const std::array<at::Tensor, kBuffers>& scratch) {
    for (size_t i = 0; i < kBuffers && i < segments_.size(); ++i) {
      arrivals_[i].buffer = scratch[i];
      PENSTOCK_RETURN_IF_ERROR(StartNext(arrivals_[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    for (size_t i = 0; i < segments_.size(); ++i) {
      Arrival& arrival = arrivals_[i % kBuffers];
      PENSTOCK_RETURN_IF_ERROR(arrival.transfer->Wait());
      PENSTOCK_RETURN_IF_ERROR(RunTorch("all-reduce", [&] { segments_[i].add_(arrival.addend); }));
      if (started_ < segments_.size()) PENSTOCK_RETURN_IF_ERROR(StartNext(arrival));
    }
    return absl::OkStatus();
  }

 private:
  struct Arrival {
    at::Tensor buffer;
    at::Tensor addend;
    Pending transfer;
  };

  absl::Status StartNext(Arrival& arrival) {
    arrival.addend = arrival.buffer.narrow(0, 0, segments_[started_++].numel());
    PENSTOCK_ASSIGN_OR_RETURN(arrival.transfer, ring_.receive(arrival.addend));
    return absl::OkStatus();
  }

  const Ring& ring_;
  const std::vector<at::Tensor> segments_;
  std::array<Arrival, kBuffers> arrivals_;
  size_t started_ = 0;
};

// For segments of the largest shard, the last.
absl::StatusOr<std::array<at::Tensor, kBuffers>> MakeScratch(const at::Tensor& tensor, const Ring& ring) {
  return CallTorch("all-reduce", [&] {
    std::array<at::Tensor, kBuffers> scratch;
    const std::vector<at::Tensor> segments = SegmentsOf(ShardAt(tensor, ring.size - 1, ring), ring);
    for (size_t i = 0; i < kBuffers && i < segments.size(); ++i) scratch[i] = at::empty_like(segments[0]);
    return scratch;
  });
}

}  // namespace

absl::Status RingReduceScatterSum(const at::Tensor& tensor, const Ring& ring) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto scratch, MakeScratch(tensor, ring));
  for (int step = 1; step < ring.size; ++step) {
    SummingReceiver receiver(ring, SegmentsOf(ShardAt(tensor, ring.position - step - 1, ring), ring));
    PENSTOCK_RETURN_IF_ERROR(receiver.Start(scratch));
    std::vector<Pending> sends;
    PENSTOCK_RETURN_IF_ERROR(
        StartAll(ring.send, SegmentsOf(ShardAt(tensor, ring.position - step, ring), ring), sends));
    PENSTOCK_RETURN_IF_ERROR(receiver.Finish());
    PENSTOCK_RETURN_IF_ERROR(WaitForAll(sends));
  }
  return absl::OkStatus();
}

absl::Status RingAllGather(const at::Tensor& tensor, const Ring& ring) {
  for (int step = 0; step < ring.size - 1; ++step) {
    std::vector<Pending> receives;
    std::vector<Pending> sends;
    PENSTOCK_RETURN_IF_ERROR(
        StartAll(ring.receive, SegmentsOf(ShardAt(tensor, ring.position - step - 1, ring), ring), receives));
    PENSTOCK_RETURN_IF_ERROR(
        StartAll(ring.send, SegmentsOf(ShardAt(tensor, ring.position - step, ring), ring), sends));
    PENSTOCK_RETURN_IF_ERROR(WaitForAll(receives));
    PENSTOCK_RETURN_IF_ERROR(WaitForAll(sends));
  }
  return absl::OkStatus();
}

absl::Status RingAllReduceSum(const at::Tensor& tensor, const Ring& ring) {
  PENSTOCK_RETURN_IF_ERROR(RingReduceScatterSum(tensor, ring));
  return RingAllGather(tensor, ring);
}

}  // namespace penstock::worker
