// Takes the gradients of a rank's stages to the shares: rounds of layers go while the last backward passes
// make the gradients below, and RESHARD takes what is left and stands for all of them. (GradientReductions
// is that of replicas which keep their parameters.)
//
//   GradientRounds rounds(parts, program);
//   stage->Backward(forward, output_gradient, rounds.During(instruction));
//   PENSTOCK_RETURN_IF_ERROR(rounds.status());
//   ...
//   PENSTOCK_RETURN_IF_ERROR(rounds.Take());   // RESHARD part 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "worker/model/weight_products.h"
#include "worker/program/program.h"
#include "worker/runtime/executor.h"

namespace penstock::worker {

// Of one iteration. Which rounds there are, and their order, is the same on all ranks (ReshardRoutes); only
// when they start differs. No pass waits for a round: it would wait for ranks that wait for what it makes.
class GradientRounds {
 public:
  // Both must outlive this object.
  GradientRounds(const ExecutorParts& parts, const Program& program);
  // Where rounds were begun and not taken to the end, the iteration has failed: aborts the communicator, and
  // blocks until nothing is under way.
  ~GradientRounds();
  GradientRounds(const GradientRounds&) = delete;
  GradientRounds& operator=(const GradientRounds&) = delete;

  // For the backward pass that `pass` runs. Empty where more is still added to the gradients of its stage,
  // and where there are no shares.
  GradientsReady During(const Instruction& pass);
  // Why rounds could not be begun.
  const absl::Status& status() const { return status_; }

  // All that are left: when this returns (on a GPU: when its stream has come so far) the share has its
  // gradients. Possible errors: those of Resharding::TakeGradients.
  absl::Status Take();

 private:
  // The gradients of the stage are complete from element `begin` on, and so are those of all stages whose
  // last pass came before.
  void Made(const Instruction& pass, int64_t begin);
  bool IsMade(size_t round) const;

  const ExecutorParts& parts_;
  // By stage: the id of its last backward pass, and from which element on its gradients are complete.
  std::map<uint32_t, uint32_t> last_;
  std::map<uint32_t, int64_t> made_;
  // Rounds that have been begun beside passes.
  size_t begun_ = 0;
  absl::Status status_;
};

}  // namespace penstock::worker
