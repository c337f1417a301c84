// Brings the parameters of a rank's stages from the shares of all ranks, and their gradients back (Li et al.
// 2024, "Hydraulis: balancing large Transformer model training via co-designing parallel strategies and data
// assignment"): what an all-gather and a reduce-scatter are to replicas of one mesh, for any mesh.
//
//   Resharding resharding({.rank = rank, .share = &share, .stages = stages, .communicator = communicator,
//                          .world = world}, routes);               // of MakeReshardRoutes
//   for (size_t count = 1; count <= resharding.rounds(); ++count) resharding.BringRounds(count);
//   resharding.BringParameters();                          // the end of the last one
//   ... passes; while the last ones run: resharding.TakeRounds(ready) ...
//   PENSTOCK_RETURN_IF_ERROR(resharding.TakeGradients());
//   ... the optimizer updates the share ...
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/model/flat_parameters.h"
#include "worker/model/stage.h"
#include "worker/program/topology.h"
#include "worker/shares/reshard_routes.h"

namespace penstock::worker {

// Of one rank and strategy. All pointers must outlive the resharding.
struct ReshardingParts {
  uint32_t rank = 0;
  const FlatParameters* share = nullptr;
  std::map<uint32_t, Stage*> stages = {};
  Communicator* communicator = nullptr;
  // All ranks, ascending: a group of the communicator.
  RankGroup world = {};
};

// All ranks call the same methods in the same order. CPU: they block. GPU: what is launched runs on the
// current stream, which waits. A round is packed while the one before it travels: the messages of two rounds
// are in memory beside share and stages. Possible errors of both: those of Communicator::StartAllToAll,
// RESOURCE_EXHAUSTED (memory), INTERNAL.
class Resharding {
 public:
  Resharding(ReshardingParts parts, std::shared_ptr<const ReshardRoutes> routes)
      : parts_(std::move(parts)), routes_(std::move(routes)) {}

  const FlatParameters& share() const { return *parts_.share; }
  size_t rounds() const { return routes_->rounds.size(); }
  // Of this rank's stages: where the lowest gradient begins that the round, not the last one, takes. By
  // stage; a stage of which it takes nothing is left out.
  const std::map<uint32_t, int64_t>& BeginsOf(size_t round) const { return routes_->rounds[round].begins; }

  // Fills the parameters of the stages: the bits that the shares have.
  absl::Status BringParameters();

  // The first rounds of BringParameters, up to `count` of them, in reverse order: from the lowest layers up,
  // as passes use them. All but the last of these are there when it returns. May be called again for more;
  // those calls, BringParameters included, run one after another, on any thread.
  absl::Status BringRounds(size_t count);

  // Sums the gradients of the stages of all ranks into the gradients of the shares, where each rank finds
  // those of its elements, and has those of its stages be 0. Every rank that has a parameter gives its own
  // part of the gradient: replicas, context ranks, tensor ranks that have it whole, stages that share it.
  // Summed in the order of the ranks, so that the sum has the same bits in every run.
  absl::Status TakeGradients();

  // The first rounds of TakeGradients, up to `end` of them: those whose gradients are complete, while
  // backward passes make others. May be called again for more. The calls of an iteration, TakeGradients
  // included, run one after another, on any thread.
  absl::Status TakeRounds(size_t end);

 private:
  using Messages = std::vector<at::Tensor>;
  // A round that is under way. Of each rank: what goes there, and what comes.
  struct Travelling {
    Messages sent;
    Messages received;
    std::unique_ptr<PendingTransfer> exchange;
  };
  // How a round is begun, and what is done with what has come.
  using Pack = Messages (Resharding::*)(const ReshardRound& round) const;
  using Unpack = void (Resharding::*)(const ReshardRound& round, const Messages& received) const;

  // The one that is brought behind so many others.
  const ReshardRound& RoundOfParameters(size_t before) const {
    return routes_->rounds[rounds() - 1 - before];
  }

  absl::StatusOr<Travelling> Start(const ReshardRound& round, Pack pack, Pack make_room);
  // Waits for what has been started.
  absl::Status End(const ReshardRound& round, const Travelling& travelling, Unpack unpack);

  // All throw what LibTorch throws. A rank's own message, which goes nowhere, is packed like the others, and
  // needs no room of its own.
  Messages PackShare(const ReshardRound& round) const;
  Messages RoomForStages(const ReshardRound& round) const;
  void FillStages(const ReshardRound& round, const Messages& received) const;
  Messages PackStages(const ReshardRound& round) const;
  Messages RoomForShare(const ReshardRound& round) const;
  void AddToShare(const ReshardRound& round, const Messages& received) const;

  const ReshardingParts parts_;
  const std::shared_ptr<const ReshardRoutes> routes_;
  // Of the parameters of this iteration: rounds that have been started, of which the last one travels.
  size_t brought_ = 0;
  Travelling bringing_;
  // The same of gradients.
  size_t taken_ = 0;
  Travelling travelling_;
};

}  // namespace penstock::worker
