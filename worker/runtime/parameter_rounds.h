// Brings the parameters of a rank's stages from the shares: RESHARD is over when the first pass can begin,
// and passes wait, layer by layer, for what they need. (GradientRounds takes gradients back.)
//
//   ParameterRounds rounds(parts, program);
//   PENSTOCK_RETURN_IF_ERROR(rounds.BringFirst());   // RESHARD part 0
//   PENSTOCK_RETURN_IF_ERROR(rounds.BringOthers());  // behind its end
//   ...
//   stage->Forward(..., rounds.For(instruction.stage));
//   PENSTOCK_RETURN_IF_ERROR(rounds.AwaitAllOf(instruction.stage));
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "worker/model/stage.h"
#include "worker/program/program.h"
#include "worker/runtime/executor.h"

namespace penstock::worker {

// Of one iteration. All ranks begin all rounds, in one order, before they run a pass, so that whoever waits
// for one gets it.
class ParameterRounds {
 public:
  // Both must outlive this object.
  ParameterRounds(const ExecutorParts& parts, const Program& program);
  // Where rounds are still under way, the iteration has failed: aborts the communicator, and blocks until
  // nothing is.
  ~ParameterRounds();
  ParameterRounds(const ParameterRounds&) = delete;
  ParameterRounds& operator=(const ParameterRounds&) = delete;

  // Begins the first rounds, and waits until the first pass of the program has what it needs first; without a
  // pass, until all have come. Possible errors: those of Resharding::BringParameters.
  absl::Status BringFirst();
  // Begins all others.
  absl::Status BringOthers();

  // For a forward pass on the stage. Empty where all that it holds has come, and where there are no shares.
  ParametersNeeded For(uint32_t stage);
  // Whether all that the stage holds has come: blocks until it has. Errors of the rounds, and why a call of
  // For's result could not wait: what the pass has made is worth nothing then.
  absl::Status AwaitAllOf(uint32_t stage);

 private:
  // The lowest parameter of a stage that a round brings, and how many rounds there are up to that one.
  struct Upwards {
    int64_t begin = 0;
    size_t rounds = 0;
  };

  // How many rounds bring what the stage holds before element `end`.
  size_t RoundsFor(uint32_t stage, int64_t end) const;
  // How many bring what the first pass needs first.
  size_t FirstRounds() const;
  // Has the first `works` of the rounds' works done: each begins a round and ends the one before, and one
  // more ends the last round.
  absl::Status Begin(size_t works);
  absl::Status Await(size_t rounds);

  const ExecutorParts& parts_;
  const Program& program_;
  // By stage of the rank, from the lowest layers up.
  std::map<uint32_t, std::vector<Upwards>> rounds_of_;
  // Works that have been begun, and rounds that have been waited for.
  size_t works_ = 0;
  size_t there_ = 0;
  absl::Status status_;
};

}  // namespace penstock::worker
