// Sums the gradients of a rank's stages over their replicas. A stage's last backward pass lets bucket after
// bucket go while it makes the ones below (Li et al. 2020, "PyTorch Distributed: experiences on accelerating
// data parallel training", section 3.2.3); REDUCE_GRADIENTS starts what is left and stands for all of them.
//
//   GradientReductions reductions(parts, program);
//   stage->Backward(forward, output_gradient, reductions.During(instruction));
//   PENSTOCK_RETURN_IF_ERROR(reductions.status());
//   ...
//   PENSTOCK_ASSIGN_OR_RETURN(auto pending, reductions.Start(reduction));   // REDUCE_GRADIENTS
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/model/linear.h"
#include "worker/program/program.h"
#include "worker/runtime/executor.h"

namespace penstock::worker {

// Experts that ranks divide are summed over those of the group that have the same ones.
//
// What several tensor ranks have of a span is summed over them first, with the passes' group and in their
// order: the ranks of a stage group have the same passes and reductions in one order.
//
// Of one iteration. What is summed, and in which order, follows from the REDUCE_GRADIENTS of the program
// alone, so that it is the same on all ranks of a group, whose passes may come in other orders: a stage's
// buckets from the upper one to the lowest, then what stages share. Only when it starts differs.
class GradientReductions {
 public:
  // Both must outlive this object.
  GradientReductions(const ExecutorParts& parts, const Program& program);

  // For the backward pass that `pass` runs. Empty where it has nothing to let go: passes of its stage are
  // still to come, or the reduction of another stage comes before that of its own. Must not be called after
  // the pass.
  GradientsReady During(const Instruction& pass);
  // Why a bucket could not be let go. Possible errors: those of Communicator::StartAllReduceSum.
  const absl::Status& status() const { return status_; }

  // All that `reduction`, a REDUCE_GRADIENTS, sums. Possible errors: those of StartAllReduceSum; INTERNAL
  // (its group is not that of the optimizer's shards).
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Start(const Instruction& reduction);

  // By stage, of those that are reduced: the group.
  const std::map<uint32_t, uint32_t>& groups() const { return groups_; }
  // The ranks that sum the gradients of the stage's spans with these holders, in the order of their shards.
  // The stage is one that is reduced.
  std::vector<uint32_t> GroupOf(uint32_t stage, Holders holders) const;

 private:
  struct Started {
    // Buckets that have not been let go: the lowest ones.
    size_t buckets_left = 0;
    std::vector<std::unique_ptr<PendingTransfer>> pending;
  };

  void FindLastPasses();
  // Starts the buckets that begin at `begin` or above.
  absl::Status StartBuckets(const Instruction& reduction, int64_t begin);
  absl::Status StartSpan(const Instruction& reduction, const FlatSpan& span);

  const ExecutorParts& parts_;
  const Program& program_;
  std::map<uint32_t, uint32_t> groups_;
  // By id of a backward pass: the REDUCE_GRADIENTS whose buckets it may let go.
  std::map<uint32_t, uint32_t> reduction_of_pass_;
  // By stage.
  std::map<uint32_t, Started> started_;
  absl::Status status_;
};

}  // namespace penstock::worker
