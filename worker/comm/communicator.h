// Point-to-point transfers and collectives of one epoch, over c10d: Gloo on CPU, NCCL on GPU.
//
//   PENSTOCK_ASSIGN_OR_RETURN(auto communicator, MakeGlooCommunicator(options));   // blocks until all peers
//   join PENSTOCK_ASSIGN_OR_RETURN(auto transfer, communicator->Receive(buffer, /*peer=*/0, /*sequence=*/3));
//   ... compute ...
//   PENSTOCK_RETURN_IF_ERROR(transfer->Wait());
//
// Transfers, and the reductions of gradients, are started and waited for apart. Calls come from one thread,
// those of StartAllToAll from one other beside it (InstructionOrder::Beside); Abort may come from any.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/host_span.h"
#include "worker/model/stage_group.h"
#include "worker/program/group_place.h"

namespace penstock::worker {

// A transfer or a reduction that was started. Keeps its tensors alive; must not outlive its communicator.
class PendingTransfer {
 public:
  virtual ~PendingTransfer() = default;
  // CPU: blocks until the data has arrived (or has been taken over). GPU: makes the current stream wait.
  // Possible errors: UNAVAILABLE (the peer is gone or the time-out passed; names the peer), CANCELLED
  // (aborted).
  virtual absl::Status Wait() = 0;
  // When it ran, where that is measured on the host. After Wait.
  virtual std::optional<HostSpan> span() const { return std::nullopt; }
};

// With whom the passes of a rank exchange (StageGroup): the ranks of its context rank, by tensor rank; those
// of its tensor rank, by context rank; and those that divide the experts with it.
struct PassGroups {
  GroupPlace place = {};
  std::vector<uint32_t> tensors = {};
  std::vector<uint32_t> contexts = {};
  std::vector<uint32_t> experts = {};
};

struct CommunicatorOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // Own address, under which the other ranks reach this one.
  std::string host = "127.0.0.1";
  // "host:port" of the table that rank 0 serves (StoreServer).
  std::string rendezvous_address;
  // New for each epoch, so that the keys of an old one are never read.
  uint64_t epoch = 0;
  // What the workers of the epoch share and nobody else has: guards the rendezvous and the connections. Never
  // shown. Empty: they are open to whoever reaches them.
  std::string secret = {};
  // All groups that this rank is in: its pipeline and those that reduce gradients. Ranks in any order, but
  // the same in all ranks' options. Two ranks exchange point to point if they share a group. Groups of one
  // are allowed.
  std::vector<std::vector<uint32_t>> groups;
  // Pairs of ranks that will exchange point to point, this rank one of each (Topology::LinksOf): where
  // connecting takes long, it is done before the first iteration, pair after pair in this order.
  std::vector<std::vector<uint32_t>> links = {};
  // They have connections of their own, made with those of the groups: what passes exchange waits for no
  // reduction.
  PassGroups passes = {};
  // The same of the job's strategies behind the first, of all ranks in one order. A group that several of
  // them have is joined once: iterations of two strategies never run at a time.
  std::vector<PassGroups> other_passes = {};
  // That JoinPasses is used: the store must live as long as the communicator then.
  bool joins_passes_later = false;
  // That StartAllToAll is used: where connecting takes long, each two ranks of a group are connected before
  // the first iteration.
  bool connects_all_pairs = false;
  // Has groups of one joined and their collectives done like any other's: one GPU is then enough to see what
  // NCCL makes of them.
  bool join_groups_of_one = false;
  // How long a peer may take to start its end of a transfer: longer than its longest computation. A peer that
  // dies is noticed at once, whatever this says; one that hangs is the planner's business (heartbeats).
  std::chrono::milliseconds timeout{300'000};
  // How long the others may take to connect, once all ranks of a group are there.
  std::chrono::milliseconds connect_timeout{10'000};
  // Asked some times a second while this rank waits for others to come: not OK when it need not (the epoch
  // has failed), and why.
  std::function<absl::Status()> still_wanted = [] { return absl::OkStatus(); };
  at::Device device = at::kCPU;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // `sequence` counts transfers from one rank to one other within an iteration; both ends give the same. A
  // tensor without elements is not sent: both ends know. Several may be under way; those of one pair and
  // direction are started in the same order at both ends. The tensor of Receive must be contiguous and is
  // overwritten; that of Send must not change before Wait returns. Possible errors: INVALID_ARGUMENT (a peer
  // outside all groups, a tensor that is not contiguous), UNAVAILABLE (the peer is gone), CANCELLED
  // (aborted).
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor& tensor, uint32_t peer,
                                                                uint32_t sequence) = 0;
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t peer,
                                                                   uint32_t sequence) = 0;
  // Sums in place over the ranks of the group; the same bits on all of them and in every run. Blocks (GPU:
  // makes the current stream wait). `group` is one of the options', in their order; a group of one is a
  // no-op. All ranks give tensors of the same shapes and types in the same order; they may be of any size,
  // small ones travel together. Possible errors: INVALID_ARGUMENT (an unknown group), UNAVAILABLE (names the
  // peer), CANCELLED.
  virtual absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) = 0;
  // The same beside what the caller does next. Nobody may touch the tensors until Wait has returned; they are
  // contiguous and of one dimension. Reductions run one after another, in the order in which they were
  // started: ranks that share several groups start them in one order.
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllReduceSum(
      const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) = 0;
  // The two halves of an all-reduce, for those who work on their part of the sum in between. The ranks of the
  // group divide each tensor as ShardOf says (shard.h), by their places in the group. After the first, this
  // rank's shard is the sum, with the bits that AllReduceSum of this tensor alone gives, and what the others
  // hold there is undefined. It is started as StartAllReduceSum is. The second has every rank send its shard
  // to all, and blocks as AllReduceSum does.
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduceScatterSum(
      const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) = 0;
  virtual absl::Status AllGather(const std::vector<at::Tensor>& tensors,
                                 const std::vector<uint32_t>& group) = 0;
  // Every rank of the group sends something to every other one. Of each rank, in the order of the group: what
  // goes there, and where to put what comes from there, as many elements as it sends, none where it sends
  // none. Tensors are contiguous and of one dimension; those of this rank itself are left alone. It is
  // started as StartAllReduceSum is, and has the same errors; INVALID_ARGUMENT, also: not a tensor for each
  // rank.
  virtual absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllToAll(
      const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received,
      const std::vector<uint32_t>& group) = 0;

  // What passes exchange that run on a strategy, in the order of the options (`passes`, then
  // `other_passes`), or that was joined since, as long as this lives; null: this rank holds its stages alone.
  // Calls come from one thread at a time, which may be another one than this object's others.
  virtual StageGroup* StageGroupOf(size_t /*strategy*/) { return nullptr; }
  // Has passes of one more strategy exchange. All ranks of the world call it for the same strategies in the
  // same order, at a time when nothing is under way; blocks until those of this rank's groups have come,
  // which they have connect_timeout for: whoever may be late meets the others first. `links`: as in the
  // options. Possible errors: INVALID_ARGUMENT (without joins_passes_later; names the group), UNAVAILABLE
  // (a rank has not come, names the group), CANCELLED.
  virtual absl::Status JoinPasses(size_t /*strategy*/, const PassGroups& /*passes*/,
                                  const std::vector<std::vector<uint32_t>>& /*links*/) {
    return absl::OkStatus();
  }
  // Of the first.
  StageGroup* stage_group() { return StageGroupOf(0); }

  // Whether the store must live as long as this: connections are made when they are first needed. Otherwise
  // AwaitAllJoined says when it is not needed any more.
  virtual bool keeps_store() const { return false; }

  // Ends every pending and later call with CANCELLED and the reason. Any thread; idempotent. Peers notice
  // when the communicator is destroyed.
  virtual void Abort(const std::string& reason) = 0;
  // OK; after Abort: what calls end with. Where the device runs behind the host, this tells whether what it
  // has come to so far is what was sent.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// The table of an epoch in which ranks say where they listen, served by rank 0 on a free port of one of its
// addresses. Must live until all ranks have made their communicators (AwaitAllJoined).
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  virtual uint16_t port() const = 0;
  // `host`: a name or an address of this machine, reached by the other ranks. `secret`: of their options; who
  // has it not is told nothing and stores nothing.
  // Possible errors: UNAVAILABLE (not this machine's, or no port is free).
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const std::string& host,
                                                            const std::string& secret = "");
};

// Both block until all ranks of the groups have joined. Gloo's has the process ignore SIGPIPE, unless it
// handles it. Possible errors: INVALID_ARGUMENT (names the option), UNAVAILABLE (the store did not answer, or
// ranks have not come; names the group), CANCELLED (it is not wanted any more).
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CommunicatorOptions& options);
// Possible errors, also: UNIMPLEMENTED (built without PENSTOCK_CUDA).
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CommunicatorOptions& options);

// Says in the store that this rank has made its communicator. Rank 0 blocks until all ranks of the world have
// said so, the others do not.
// Possible errors: INVALID_ARGUMENT (rendezvous_address), UNAVAILABLE (the store did not answer, or a rank
// has not come though its groups have had their time, see LongestMeeting), CANCELLED (it is not wanted any
// more).
absl::Status AwaitAllJoined(const CommunicatorOptions& options);

}  // namespace penstock::worker
