// Point-to-point transfers and collectives of one epoch, over c10d: Gloo on CPU, NCCL on GPU.
//
// Transfers are started and waited for apart. Calls come from one thread; Abort may come from any.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::worker {

// A transfer that was started. Keeps its tensor alive.
class PendingTransfer {
 public:
  virtual ~PendingTransfer() = default;
  // CPU: blocks until the data has arrived (or has been taken over). GPU: makes the current stream wait.
  // Possible errors: UNAVAILABLE (the peer is gone or the time-out passed; names the peer), CANCELLED
  // (aborted).
  virtual absl::Status Wait() = 0;
};

struct CommunicatorOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // "host:port" of the c10d TCPStore (served by rank 0, see StoreServer).
  std::string rendezvous_address;
  // New for each epoch, so that the keys of an old one are never read.
  uint64_t epoch = 0;
  // Ranks of this rank's pipeline, in stage order, and the groups that reduce gradients.
  std::vector<std::vector<uint32_t>> groups;
  std::chrono::milliseconds timeout{10'000};
  at::Device device = at::kCPU;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // `sequence` counts transfers from one rank to one other within an iteration; both ends give the same.
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor& tensor, uint32_t peer,
                                                                uint32_t sequence) = 0;
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t peer,
                                                                   uint32_t sequence) = 0;
  // Sums in place over the ranks of the group; the same bits on all of them and in every run. A group of one
  // is a no-op.
  virtual absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) = 0;

  // Ends every pending and later call with CANCELLED. Any thread.
  virtual void Abort(const std::string& reason) = 0;
};

// The TCPStore of an epoch, served by rank 0 on a free port.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  virtual uint16_t port() const = 0;
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start();
};

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CommunicatorOptions& options);
// Built with the `cuda` preset.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CommunicatorOptions& options);

}  // namespace penstock::worker
