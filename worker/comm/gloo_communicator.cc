// Communicator over Gloo: one process group for each group of ranks, sends and receives told apart by tags.
// Collectives are sends and receives on a thread of their own, the collective stream of a CPU: rings, and
// where tensors are small everybody with everybody.
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "common/sync/task_thread.h"
#include "worker/comm/communicator.h"
#include "worker/comm/direct_sum.h"
#include "worker/comm/gloo_group.h"
#include "worker/comm/grouped_communicator.h"
#include "worker/comm/pass_exchange.h"
#include "worker/comm/ring.h"
#include "worker/comm/thread_operation.h"
#include "worker/comm/transfer.h"

namespace penstock::worker {
namespace {

// Transfers have their sequence number as tag. Messages of one tag arrive in the order in which they were
// sent, which is all that collectives and the next iteration need.
constexpr uint32_t kCollectiveTag = uint32_t{1} << 30;

using Pending = std::unique_ptr<PendingTransfer>;
using Backend = c10::intrusive_ptr<c10d::Backend>;
using GlooGroups = std::map<RankGroup, Backend>;

// A group over which passes exchange; no backend where it is of one.
struct PassLinks {
  RankGroup ranks = {};
  Backend backend = {};
};

struct PassesLinks {
  GroupPlace place = {};
  PassLinks tensors = {};
  PassLinks contexts = {};
  PassLinks experts = {};
};

std::vector<Pending> NoTransfers(size_t most) {
  std::vector<Pending> transfers;
  transfers.reserve(most);
  return transfers;
}

class GlooCommunicator : public GroupedCommunicator {
 public:
  GlooCommunicator(const CommunicatorOptions& options, std::vector<RankGroup> groups, GlooGroups joined,
                   const PassesLinks& passes)
      : GroupedCommunicator(options.rank, std::move(groups)),
        timeout_(options.timeout),
        joined_(std::move(joined)) {
    if (passes.place.ranks() == 1) return;
    passes_.emplace(passes.place, ExchangeGroups{.tensors = ExchangeOver(passes.tensors),
                                                 .contexts = ExchangeOver(passes.contexts),
                                                 .experts = ExchangeOver(passes.experts)});
  }

  // A collective that nobody waits for any more must not hold up the end.
  ~GlooCommunicator() override { Abort("the communicator has ended"); }

  StageGroup* stage_group() override { return passes_.has_value() ? &*passes_ : nullptr; }

 private:
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Start(Direction direction, const RankGroup& group,
                                                         uint32_t peer, const at::Tensor& tensor,
                                                         uint32_t sequence) override {
    return StartOver(*joined_.at(group), direction, group, peer, tensor, sequence);
  }

  absl::StatusOr<Pending> StartOver(c10d::Backend& backend, Direction direction, const RankGroup& group,
                                    uint32_t peer, const at::Tensor& tensor, uint32_t sequence) {
    const int position = *PositionIn(group, peer);
    const int tag = static_cast<int>(sequence);
    std::vector<at::Tensor> tensors = {tensor};
    return StartTransfer(Describe(direction, peer), tensor, cancellation(), timeout_, [&] {
      return direction == Direction::kSend ? backend.send(tensors, position, tag)
                                           : backend.recv(tensors, position, tag);
    });
  }

  ExchangeGroup ExchangeOver(const PassLinks& links) {
    if (links.backend == nullptr) return {};
    return {.position = *PositionIn(links.ranks, rank()),
            .size = static_cast<int>(links.ranks.size()),
            .exchange = [this, links](const std::vector<at::Tensor>& sent,
                                      const std::vector<at::Tensor>& received, const Meanwhile& meanwhile) {
              return ExchangeWithAll(links, sent, received, meanwhile);
            }};
  }

  // The next rank first: not all send to the same one at a time.
  absl::Status ExchangeWithAll(const PassLinks& links, const std::vector<at::Tensor>& sent,
                               const std::vector<at::Tensor>& received, const Meanwhile& meanwhile) {
    const size_t size = links.ranks.size();
    const auto position = static_cast<size_t>(*PositionIn(links.ranks, rank()));
    std::vector<Pending> transfers = NoTransfers(2 * size);
    for (const Direction direction : {Direction::kReceive, Direction::kSend}) {
      for (size_t step = 1; step < size; ++step) {
        const bool sends = direction == Direction::kSend;
        const size_t peer = (position + (sends ? step : size - step)) % size;
        const at::Tensor& tensor = (sends ? sent : received)[peer];
        if (tensor.numel() == 0) continue;
        PENSTOCK_ASSIGN_OR_RETURN(
            transfers.emplace_back(),
            StartOver(*links.backend, direction, links.ranks, links.ranks[peer], tensor, kCollectiveTag));
      }
    }
    if (meanwhile) meanwhile();
    for (const Pending& transfer : transfers) PENSTOCK_RETURN_IF_ERROR(transfer->Wait());
    return absl::OkStatus();
  }

  absl::StatusOr<Pending> StartReduce(const at::Tensor& flat, const RankGroup& group) override {
    if (!SumsDirectly(flat, group.size())) return StartRing(RingAllReduceSum, flat, group);
    return StartOn(collectives_, [this, flat, group] { return DirectAllReduceSum(flat, MeshOf(group)); });
  }

  absl::StatusOr<Pending> StartReduceScatter(const at::Tensor& flat, const RankGroup& group) override {
    return StartRing(RingReduceScatterSum, flat, group);
  }

  absl::StatusOr<Pending> StartGather(const at::Tensor& flat, const RankGroup& group) override {
    return StartRing(RingAllGather, flat, group);
  }

  absl::StatusOr<Pending> StartRing(absl::Status (*run)(const at::Tensor&, const Ring&),
                                    const at::Tensor& flat, const RankGroup& group) {
    return StartOn(collectives_, [this, run, flat, group] { return run(flat, RingOf(group)); });
  }

  // `group` must outlive it.
  Mesh MeshOf(const RankGroup& group) {
    const auto start = [&](Direction direction) {
      return [this, &group, direction](int peer, const at::Tensor& tensor) {
        return Start(direction, group, group[static_cast<size_t>(peer)], tensor, kCollectiveTag);
      };
    };
    return {.position = *PositionIn(group, rank()),
            .size = static_cast<int>(group.size()),
            .send = start(Direction::kSend),
            .receive = start(Direction::kReceive)};
  }

  // `group` must outlive it.
  Ring RingOf(const RankGroup& group) {
    const int size = static_cast<int>(group.size());
    const int position = *PositionIn(group, rank());
    const uint32_t next = group[static_cast<size_t>((position + 1) % size)];
    const uint32_t previous = group[static_cast<size_t>((position + size - 1) % size)];
    const auto start = [&](Direction direction, uint32_t peer) {
      return [this, &group, direction, peer](const at::Tensor& part) {
        return Start(direction, group, peer, part, kCollectiveTag);
      };
    };
    return {.position = position,
            .size = size,
            .send = start(Direction::kSend, next),
            .receive = start(Direction::kReceive, previous)};
  }

  const std::chrono::milliseconds timeout_;
  const GlooGroups joined_;
  std::optional<PassExchange> passes_;
  // Last, so that it ends first.
  TaskThread collectives_;
};

absl::StatusOr<PassLinks> JoinPasses(const CommunicatorOptions& options, const StoreClient& store,
                                     const RankGroup& ranks, const std::string& purpose) {
  PENSTOCK_ASSIGN_OR_RETURN(Backend backend, JoinGlooGroup(options, store, ranks, purpose));
  return PassLinks{.ranks = ranks, .backend = std::move(backend)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CommunicatorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<RankGroup> groups, GroupsToJoin(options));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<RankGroup> of_passes, PassGroupsToJoin(options));
  GlooGroups joined;
  PassesLinks passes = {.place = options.passes.place};
  if (!groups.empty() || !of_passes.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const StoreClient store, ConnectStore(options));
    for (const RankGroup& group : groups) {
      PENSTOCK_ASSIGN_OR_RETURN(joined[group], JoinGlooGroup(options, store, group));
    }
    if (passes.place.tensors > 1) {
      PENSTOCK_ASSIGN_OR_RETURN(passes.tensors,
                                JoinPasses(options, store, options.passes.tensors, "gloo tensor ranks"));
    }
    if (passes.place.contexts > 1) {
      PENSTOCK_ASSIGN_OR_RETURN(passes.contexts,
                                JoinPasses(options, store, options.passes.contexts, "gloo context ranks"));
    }
    if (passes.place.experts > 1) {
      PENSTOCK_ASSIGN_OR_RETURN(passes.experts,
                                JoinPasses(options, store, options.passes.experts, "gloo expert ranks"));
    }
  }
  return std::make_unique<GlooCommunicator>(options, std::move(groups), std::move(joined), passes);
}

}  // namespace penstock::worker
