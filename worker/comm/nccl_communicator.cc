// Communicator over NCCL: for each group of ranks one process group a direction, so that activations and
// gradients, which flow against each other, never queue on one stream, and one for reductions.
//
// Waits make the current CUDA stream wait; they do not block the host. A lost peer shows as silence: the
// planner's heartbeats notice it, and Abort ends NCCL's kernels. NCCL connects ranks at their first
// operation: reductions and the links of the options are connected before anybody computes, so that what
// takes seconds and may fail does so under connect_timeout.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "common/sync/sync.h"
#include "worker/comm/bounded_call.h"
#include "worker/comm/communicator.h"
#include "worker/comm/grouped_communicator.h"
#include "worker/comm/pass_exchange.h"
#include "worker/comm/pending_all.h"
#include "worker/comm/store.h"
#include "worker/comm/transfer.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

using Pending = std::unique_ptr<PendingTransfer>;
using NcclGroup = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

struct NcclGroups {
  // From a lower position in the group to a higher one, and back.
  NcclGroup down;
  NcclGroup up;
  NcclGroup reduce;
};

using JoinedGroups = std::map<RankGroup, NcclGroups>;

// Over which passes exchange, in order with the stream that they run on; null where a group is of one.
struct NcclPasses {
  GroupPlace place = {};
  RankGroup tensor_ranks = {};
  RankGroup context_ranks = {};
  RankGroup expert_ranks = {};
  NcclGroup tensors = {};
  NcclGroup contexts = {};
  NcclGroup experts = {};
};

NcclGroup Join(const CommunicatorOptions& options, const StoreClient& store, const std::string& purpose,
               const RankGroup& group) {
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  nccl_options->timeout = options.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(GroupStore(store, purpose, group),
                                                     *PositionIn(group, options.rank),
                                                     static_cast<int>(group.size()), nccl_options);
}

// Joins the groups over which passes exchange; one that several strategies have is joined once.
class NcclPassesJoining {
 public:
  explicit NcclPassesJoining(const CommunicatorOptions& options) : options_(options) {}

  // Throws what NCCL throws.
  NcclPasses Join(const PassGroups& of_strategy, const StoreClient& store) {
    NcclPasses passes = {.place = of_strategy.place,
                         .tensor_ranks = of_strategy.tensors,
                         .context_ranks = of_strategy.contexts,
                         .expert_ranks = of_strategy.experts};
    if (passes.place.tensors > 1) passes.tensors = JoinOne("nccl tensor ranks", passes.tensor_ranks, store);
    if (passes.place.contexts > 1)
      passes.contexts = JoinOne("nccl context ranks", passes.context_ranks, store);
    if (passes.place.experts > 1) passes.experts = JoinOne("nccl expert ranks", passes.expert_ranks, store);
    return passes;
  }

  const CommunicatorOptions& options() const { return options_; }

 private:
  NcclGroup JoinOne(const std::string& purpose, const RankGroup& ranks, const StoreClient& store) {
    NcclGroup& group = joined_[{purpose, ranks}];
    if (group == nullptr) group = penstock::worker::Join(options_, store, purpose, ranks);
    return group;
  }

  const CommunicatorOptions options_;
  std::map<std::pair<std::string, RankGroup>, NcclGroup> joined_;
};

// Sends one element to each rank of the group.
void ExchangeOnce(const NcclGroup& group, const at::Tensor& one) {
  if (group == nullptr) return;
  std::vector<at::Tensor> sent(static_cast<size_t>(group->getSize()), one);
  std::vector<at::Tensor> received;
  for (size_t i = 0; i < sent.size(); ++i) received.push_back(at::empty_like(one));
  group->alltoall(received, sent)->wait();
}

// The first operation of links, and of what passes exchange over. Throws what NCCL throws.
void UseLinksAndPassesOnce(const CommunicatorOptions& options, const std::vector<RankGroup>& links,
                           const JoinedGroups& joined, const std::vector<NcclPasses>& passes) {
  const at::Tensor one = at::ones({1}, at::TensorOptions(at::kFloat).device(options.device));
  std::vector<at::Tensor> tensors = {one};
  for (const RankGroup& link : links) {
    const bool lower = link.front() == options.rank;
    const uint32_t peer = lower ? link.back() : link.front();
    for (const auto& [group, groups] : joined) {
      const std::optional<int> position = PositionIn(group, peer);
      if (!position.has_value()) continue;
      c10d::ProcessGroupNCCL& sending = lower ? *groups.down : *groups.up;
      c10d::ProcessGroupNCCL& receiving = lower ? *groups.up : *groups.down;
      // Down, then up, at both ends.
      if (lower) sending.send(tensors, *position, /*tag=*/0)->wait();
      receiving.recv(tensors, *position, /*tag=*/0)->wait();
      if (!lower) sending.send(tensors, *position, /*tag=*/0)->wait();
      break;
    }
  }
  for (const NcclPasses& of_strategy : passes) {
    ExchangeOnce(of_strategy.tensors, one);
    ExchangeOnce(of_strategy.contexts, one);
    ExchangeOnce(of_strategy.experts, one);
  }
  // Only now has anything happened for sure.
  (void)one.item<float>();
}

// The first operation of every group. Throws what NCCL throws.
void UseGroupsOnce(const CommunicatorOptions& options, const JoinedGroups& joined) {
  const at::Tensor one = at::ones({1}, at::TensorOptions(at::kFloat).device(options.device));
  std::vector<at::Tensor> tensors = {one};
  for (const auto& [_, groups] : joined) groups.reduce->allreduce(tensors)->wait();
  for (const auto& [_, groups] : joined) {
    if (options.connects_all_pairs) ExchangeOnce(groups.reduce, one);
  }
}

// UNAVAILABLE: not all have come within connect_timeout.
absl::Status Connect(const CommunicatorOptions& options, std::function<void()> use) {
  const auto outcome = std::make_shared<absl::Status>();
  const bool ended = EndsWithin(absl::FromChrono(options.connect_timeout),
                                [device = options.device, use = std::move(use), outcome] {
                                  *outcome = RunTorch("connecting over NCCL", [&] {
                                    const c10::DeviceGuard guard(device);
                                    use();
                                  });
                                });
  if (ended) return outcome->ok() ? *outcome : absl::UnavailableError(outcome->message());
  return absl::UnavailableError(
      absl::StrCat("connecting over NCCL: not all ranks of the groups have come within ",
                   absl::FormatDuration(absl::FromChrono(options.connect_timeout))));
}

void AbortPasses(const NcclPasses& passes) {
  for (const NcclGroup& group : {passes.tensors, passes.contexts, passes.experts}) {
    if (group != nullptr) RunTorch("abort", [&] { group->abort(); }).IgnoreError();
  }
}

class NcclCommunicator : public GroupedCommunicator {
 public:
  NcclCommunicator(NcclPassesJoining joining, std::vector<RankGroup> groups, JoinedGroups joined,
                   std::vector<NcclPasses> passes)
      : GroupedCommunicator(joining.options().rank, std::move(groups)),
        joining_(std::move(joining)),
        joined_(std::move(joined)) {
    for (size_t i = 0; i < passes.size(); ++i) Keep(i, std::move(passes[i]));
  }

  StageGroup* StageGroupOf(size_t strategy) override { return passes_.at(strategy).get(); }

  absl::Status JoinPasses(size_t strategy, const PassGroups& passes,
                          const std::vector<std::vector<uint32_t>>& links) override {
    PENSTOCK_RETURN_IF_ERROR(cancellation()->status());
    const CommunicatorOptions& options = joining_.options();
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::vector<RankGroup> groups,
        PassGroupsToJoin(options, passes, absl::StrCat("passes of strategy ", strategy)));
    NcclPasses joined = {.place = passes.place};
    if (!groups.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(const StoreClient store, ConnectStore(options));
      PENSTOCK_ASSIGN_OR_RETURN(joined, CallTorch("joining the groups of the stage group",
                                                  [&] { return joining_.Join(passes, store); }));
    }
    PENSTOCK_RETURN_IF_ERROR(Connect(options, [options, links, groups = joined_, joined] {
      UseLinksAndPassesOnce(options, links, groups, {joined});
    }));
    Keep(strategy, joined);
    // An abort that came before it was kept has not seen it.
    if (cancellation()->status().ok()) return absl::OkStatus();
    AbortPasses(joined);
    return cancellation()->status();
  }

  // Pairs that are no link are connected at their first transfer.
  bool keeps_store() const override { return true; }

 private:
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Start(Direction direction, const RankGroup& group,
                                                         uint32_t peer, const at::Tensor& tensor,
                                                         uint32_t) override {
    const int position = *PositionIn(group, peer);
    const bool peer_is_higher = position > *PositionIn(group, rank());
    const bool down = (direction == Direction::kSend) == peer_is_higher;
    const NcclGroups& groups = joined_.at(group);
    c10d::ProcessGroupNCCL& backend = down ? *groups.down : *groups.up;
    std::vector<at::Tensor> tensors = {tensor};
    return StartTransfer(Describe(direction, peer), tensor, cancellation(), kNoTimeout, [&] {
      return direction == Direction::kSend ? backend.send(tensors, position, /*tag=*/0)
                                           : backend.recv(tensors, position, /*tag=*/0);
    });
  }

  // Null where the rank holds its stages alone. `passes` must outlive it.
  std::unique_ptr<PassExchange> ExchangeOf(const NcclPasses& passes) {
    if (passes.place.ranks() == 1) return nullptr;
    return std::make_unique<PassExchange>(
        passes.place, ExchangeGroups{.tensors = ExchangeOver(passes.tensors, passes.tensor_ranks),
                                     .contexts = ExchangeOver(passes.contexts, passes.context_ranks),
                                     .experts = ExchangeOver(passes.experts, passes.expert_ranks)});
  }

  // `backend` and `ranks` must outlive it.
  ExchangeGroup ExchangeOver(const NcclGroup& backend, const RankGroup& ranks) {
    if (backend == nullptr) return {};
    return {.position = *PositionIn(ranks, rank()),
            .size = static_cast<int>(ranks.size()),
            .start = [this, &backend, &ranks](const std::vector<at::Tensor>& sent,
                                              const std::vector<at::Tensor>& received) {
              return StartExchangeOver(*backend, ranks, sent, received);
            }};
  }

  // One group of sends and receives, on the backend's own stream behind what the current one has launched;
  // Wait has the current one wait for its event. NCCL leaves out tensors without elements, as which it gets
  // this rank's own.
  absl::StatusOr<Pending> StartExchangeOver(c10d::ProcessGroupNCCL& backend, const RankGroup& ranks,
                                            std::vector<at::Tensor> sent, std::vector<at::Tensor> received) {
    const auto own = static_cast<size_t>(*PositionIn(ranks, rank()));
    const at::Tensor none = at::empty({0}, received[own].options());
    sent[own] = received[own] = none;
    return StartTransfer(absl::StrCat("exchange with ranks ", Describe(ranks)), none, cancellation(),
                         kNoTimeout, [&] { return backend.alltoall(received, sent); });
  }

  absl::StatusOr<Pending> StartExchange(const std::vector<at::Tensor>& sent,
                                        const std::vector<at::Tensor>& received,
                                        const RankGroup& group) override {
    return StartExchangeOver(*joined_.at(group).reduce, group, sent, received);
  }

  absl::StatusOr<Pending> StartReduce(const at::Tensor& flat, const RankGroup& group) override {
    std::vector<at::Tensor> tensors = {flat};
    return StartCollective("all-reduce", flat, group,
                           [&](c10d::ProcessGroupNCCL& backend) { return backend.allreduce(tensors); });
  }

  absl::StatusOr<Pending> StartReduceScatter(const at::Tensor& flat, const RankGroup& group) override {
    return StartParts(
        "reduce-scatter", flat, group,
        [](auto& backend, at::Tensor& whole, at::Tensor& own) {
          return backend._reduce_scatter_base(own, whole);
        },
        [](auto& backend, std::vector<at::Tensor>& rest, int last) {
          c10d::ReduceOptions options;
          options.rootRank = last;
          return backend.reduce(rest, options);
        });
  }

  absl::StatusOr<Pending> StartGather(const at::Tensor& flat, const RankGroup& group) override {
    return StartParts(
        "all-gather", flat, group,
        [](auto& backend, at::Tensor& whole, at::Tensor& own) { return backend._allgather_base(whole, own); },
        [](auto& backend, std::vector<at::Tensor>& rest, int last) {
          c10d::BroadcastOptions options;
          options.rootRank = last;
          return backend.broadcast(rest, options);
        });
  }

  // Starts what is to be done with the equal parts of a tensor, and with what is left over, where there is
  // any.
  template <typename OfEven, typename OfRest>
  absl::StatusOr<Pending> StartParts(absl::string_view what, const at::Tensor& flat, const RankGroup& group,
                                     OfEven of_even, OfRest of_rest) {
    const Division division(flat, group, rank());
    std::vector<Pending> started;
    if (division.even.numel() > 0) {
      at::Tensor whole = division.even;
      at::Tensor own = division.own;
      PENSTOCK_ASSIGN_OR_RETURN(
          started.emplace_back(),
          StartCollective(what, flat, group, [&](auto& backend) { return of_even(backend, whole, own); }));
    }
    if (division.rest.numel() > 0) {
      std::vector<at::Tensor> rest = {division.rest};
      PENSTOCK_ASSIGN_OR_RETURN(started.emplace_back(),
                                StartCollective(what, flat, group, [&](auto& backend) {
                                  return of_rest(backend, rest, division.last);
                                }));
    }
    return std::make_unique<PendingAll>(std::move(started));
  }

  // A flat tensor as ShardOf divides it: NCCL's collectives take equal parts, so what is left over for the
  // last rank travels by itself. In place: `own` is this rank's part of `even`.
  struct Division {
    Division(const at::Tensor& flat, const RankGroup& group, uint32_t rank)
        : last(static_cast<int>(group.size()) - 1) {
      const int64_t each = flat.numel() / (last + 1);
      even = flat.narrow(0, 0, each * (last + 1));
      own = flat.narrow(0, each * *PositionIn(group, rank), each);
      rest = flat.narrow(0, even.numel(), flat.numel() - even.numel());
    }

    int last;
    at::Tensor even;
    at::Tensor own;
    at::Tensor rest;
  };

  // On NCCL's stream, when the current one has come so far.
  absl::StatusOr<Pending> StartCollective(
      absl::string_view what, const at::Tensor& flat, const RankGroup& group,
      const std::function<Cancellation::Work(c10d::ProcessGroupNCCL& backend)>& start) {
    return StartTransfer(absl::StrCat(what, " over ranks ", Describe(group)), flat, cancellation(),
                         kNoTimeout, [&] { return start(*joined_.at(group).reduce); });
  }

  void Keep(size_t strategy, NcclPasses passes) {
    const NcclPasses* kept = nullptr;
    {
      MutexLock lock(&mutex_);
      kept = &of_passes_.insert_or_assign(strategy, std::move(passes)).first->second;
    }
    passes_[strategy] = ExchangeOf(*kept);
  }

  // What an abort has to say is of no interest: every call answers CANCELLED from now on.
  std::function<void()> GroupAbort() override {
    MutexLock lock(&mutex_);
    return [joined = joined_, passes = of_passes_] {
      for (const auto& [_, of_strategy] : passes) AbortPasses(of_strategy);
      for (const auto& [_, groups] : joined) {
        for (const NcclGroup& group : {groups.down, groups.up, groups.reduce}) {
          RunTorch("abort", [&] { group->abort(); }).IgnoreError();
        }
      }
    };
  }

  NcclPassesJoining joining_;
  const JoinedGroups joined_;
  // An abort asks for them from any thread. By strategy, as the next.
  Mutex mutex_;
  std::map<size_t, NcclPasses> of_passes_ ABSL_GUARDED_BY(mutex_);
  std::map<size_t, std::unique_ptr<PassExchange>> passes_;
};

NcclGroups JoinAll(const CommunicatorOptions& options, const StoreClient& store, const RankGroup& group) {
  return {Join(options, store, "nccl down", group), Join(options, store, "nccl up", group),
          Join(options, store, "nccl reduce", group)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CommunicatorOptions& options) {
  if (!options.device.is_cuda()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: ", options.device.str(), ", but NCCL needs a CUDA device"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<RankGroup> groups, GroupsToJoin(options));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<RankGroup> of_passes, PassGroupsToJoin(options));
  JoinedGroups joined;
  NcclPassesJoining joining(options);
  std::vector<NcclPasses> passes;
  if (groups.empty() && of_passes.empty()) {
    // Nothing is joined: of this rank alone.
    passes.resize(PassesOf(options).size());
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const StoreClient store, ConnectStore(options));
    for (const RankGroup& group : groups) {
      PENSTOCK_ASSIGN_OR_RETURN(joined[group],
                                CallTorch(absl::StrCat("joining the group of ranks ", Describe(group)),
                                          [&] { return JoinAll(options, store, group); }));
    }
    for (const PassGroups& of_strategy : PassesOf(options)) {
      PENSTOCK_ASSIGN_OR_RETURN(passes.emplace_back(),
                                CallTorch("joining the groups of the stage group",
                                          [&] { return joining.Join(of_strategy, store); }));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(Connect(options, [options, joined, passes] {
    UseGroupsOnce(options, joined);
    UseLinksAndPassesOnce(options, options.links, joined, passes);
  }));
  return std::make_unique<NcclCommunicator>(std::move(joining), std::move(groups), std::move(joined),
                                            std::move(passes));
}

}  // namespace penstock::worker
