// Communicator over Gloo: one process group for each group of ranks, sends and receives told apart by tags.
// Collectives are sends and receives on a thread of their own, the collective stream of a CPU: rings, and
// where tensors are small everybody with everybody.
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

// With every other rank of a group. Ends with the first error: where one rank is gone the others need not
// have begun.
class PendingWithAll : public PendingTransfer {
 public:
  explicit PendingWithAll(std::vector<Pending> transfers) : transfers_(std::move(transfers)) {}

  absl::Status Wait() override {
    for (const Pending& transfer : transfers_) PENSTOCK_RETURN_IF_ERROR(transfer->Wait());
    return absl::OkStatus();
  }

 private:
  const std::vector<Pending> transfers_;
};

// Joins the groups over which passes exchange. All ranks do it in one order: strategy by strategy, in each
// tensor ranks, context ranks, experts; ranks that have joined a group for one strategy do not wait for it in
// another.
class PassesJoining {
 public:
  explicit PassesJoining(const CommunicatorOptions& options) : options_(options) {}

  absl::StatusOr<PassesLinks> Join(const PassGroups& passes, const StoreClient& store) {
    PassesLinks links = {.place = passes.place};
    if (links.place.tensors > 1) {
      PENSTOCK_ASSIGN_OR_RETURN(links.tensors, JoinOne("gloo tensor ranks", passes.tensors, store));
    }
    if (links.place.contexts > 1) {
      PENSTOCK_ASSIGN_OR_RETURN(links.contexts, JoinOne("gloo context ranks", passes.contexts, store));
    }
    if (links.place.experts > 1) {
      PENSTOCK_ASSIGN_OR_RETURN(links.experts, JoinOne("gloo expert ranks", passes.experts, store));
    }
    return links;
  }

  const CommunicatorOptions& options() const { return options_; }

 private:
  absl::StatusOr<PassLinks> JoinOne(const std::string& purpose, const RankGroup& ranks,
                                    const StoreClient& store) {
    Backend& backend = joined_[{purpose, ranks}];
    if (backend == nullptr) {
      PENSTOCK_ASSIGN_OR_RETURN(backend, JoinGlooGroup(options_, store, ranks, purpose));
    }
    return PassLinks{.ranks = ranks, .backend = backend};
  }

  const CommunicatorOptions options_;
  std::map<std::pair<std::string, RankGroup>, Backend> joined_;
};

class GlooCommunicator : public GroupedCommunicator {
 public:
  GlooCommunicator(PassesJoining joining, std::vector<RankGroup> groups, GlooGroups joined,
                   const std::vector<PassesLinks>& passes)
      : GroupedCommunicator(joining.options().rank, std::move(groups)),
        joining_(std::move(joining)),
        timeout_(joining_.options().timeout),
        joined_(std::move(joined)) {
    for (size_t i = 0; i < passes.size(); ++i) passes_[i] = ExchangeOf(passes[i]);
  }

  // A collective that nobody waits for any more must not hold up the end.
  ~GlooCommunicator() override { Abort("the communicator has ended"); }

  StageGroup* StageGroupOf(size_t strategy) override { return passes_.at(strategy).get(); }

  // Every two ranks are connected: their links are there.
  absl::Status JoinPasses(size_t strategy, const PassGroups& passes,
                          const std::vector<std::vector<uint32_t>>& /*links*/) override {
    PENSTOCK_RETURN_IF_ERROR(cancellation()->status());
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::vector<RankGroup> groups,
        PassGroupsToJoin(joining_.options(), passes, absl::StrCat("passes of strategy ", strategy)));
    StoreClient store;
    if (!groups.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(store, ConnectStore(joining_.options()));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const PassesLinks links, joining_.Join(passes, store));
    passes_[strategy] = ExchangeOf(links);
    return absl::OkStatus();
  }

  bool keeps_store() const override { return joining_.options().joins_passes_later; }

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

  // Null where the rank holds its stages alone.
  std::unique_ptr<PassExchange> ExchangeOf(const PassesLinks& links) {
    if (links.place.ranks() == 1) return nullptr;
    return std::make_unique<PassExchange>(links.place,
                                          ExchangeGroups{.tensors = ExchangeOver(links.tensors),
                                                         .contexts = ExchangeOver(links.contexts),
                                                         .experts = ExchangeOver(links.experts)});
  }

  ExchangeGroup ExchangeOver(const PassLinks& links) {
    if (links.backend == nullptr) return {};
    return {
        .position = *PositionIn(links.ranks, rank()),
        .size = static_cast<int>(links.ranks.size()),
        .start = [this, links](const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received) {
          return StartWithAll(*links.backend, links.ranks, sent, received);
        }};
  }

  // The next rank first: not all send to the same one at a time.
  absl::StatusOr<Pending> StartWithAll(c10d::Backend& backend, const RankGroup& ranks,
                                       const std::vector<at::Tensor>& sent,
                                       const std::vector<at::Tensor>& received) {
    const size_t size = ranks.size();
    const auto position = static_cast<size_t>(*PositionIn(ranks, rank()));
    std::vector<Pending> transfers = NoTransfers(2 * size);
    for (const Direction direction : {Direction::kReceive, Direction::kSend}) {
      for (size_t step = 1; step < size; ++step) {
        const bool sends = direction == Direction::kSend;
        const size_t peer = (position + (sends ? step : size - step)) % size;
        const at::Tensor& tensor = (sends ? sent : received)[peer];
        if (tensor.numel() == 0) continue;
        PENSTOCK_ASSIGN_OR_RETURN(transfers.emplace_back(),
                                  StartOver(backend, direction, ranks, ranks[peer], tensor, kCollectiveTag));
      }
    }
    return std::make_unique<PendingWithAll>(std::move(transfers));
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

  absl::StatusOr<Pending> StartExchange(const std::vector<at::Tensor>& sent,
                                        const std::vector<at::Tensor>& received,
                                        const RankGroup& group) override {
    return StartOn(collectives_, [this, sent, received, group]() -> absl::Status {
      PENSTOCK_ASSIGN_OR_RETURN(const Pending exchange,
                                StartWithAll(*joined_.at(group), group, sent, received));
      return exchange->Wait();
    });
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

  PassesJoining joining_;
  const std::chrono::milliseconds timeout_;
  const GlooGroups joined_;
  // By strategy.
  std::map<size_t, std::unique_ptr<PassExchange>> passes_;
  // Last, so that it ends first.
  TaskThread collectives_{"collectives"};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CommunicatorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<RankGroup> groups, GroupsToJoin(options));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<RankGroup> of_passes, PassGroupsToJoin(options));
  GlooGroups joined;
  std::vector<PassesLinks> passes;
  StoreClient store;
  if (!groups.empty() || !of_passes.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(store, ConnectStore(options));
  }
  for (const RankGroup& group : groups) {
    PENSTOCK_ASSIGN_OR_RETURN(joined[group], JoinGlooGroup(options, store, group));
  }
  PassesJoining joining(options);
  for (const PassGroups& of_strategy : PassesOf(options)) {
    PENSTOCK_ASSIGN_OR_RETURN(passes.emplace_back(), joining.Join(of_strategy, store));
  }
  return std::make_unique<GlooCommunicator>(std::move(joining), std::move(groups), std::move(joined), passes);
}

}  // namespace penstock::worker
