// What a RESHARD takes, and what of it runs beside passes (execution.md, section 7).
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace penstock::core {

// A stage among those of its rank: their layers, those of the stage, and those of the stages below it.
struct StageOfRank {
  int64_t layers_of_rank = 0;
  int64_t layers = 0;
  int64_t below = 0;
};

// The first pass of a rank on a stage, or the last one, and how long there is to it from the end of the
// RESHARD, or from it to the end of the last one of all.
struct PassBeside {
  double apart_ns = 0;
  int64_t pass_ns = 0;
  StageOfRank stage;
};

// It goes in equal rounds, one after the other. Gradients go from the uppermost layer of each rank down, as
// backward passes make them: a round may begin when all ranks have made theirs. Parameters come from the
// lowest layer up, as forward passes use them: the same, read backwards in time.
struct ReshardTime {
  // Of all rounds.
  int64_t whole_ns = 0;
  int64_t rounds = 1;
  // How much of an exchange goes on while a rank computes, 0 to 1.
  double overlap = 0;

  // Of gradients: how long before the end of the last pass on a stage of a rank the rounds could have begun,
  // as far as this stage is concerned, without any of them waiting for it: the last round of the stage is
  // there when the pass ends, the first one when a round's layers have been run. Of parameters: how long
  // behind the start of the first pass on it they may end, without the pass waiting for any of them.
  double LeadNs(int64_t pass_ns, const StageOfRank& stage) const;

  // What is left before the first pass, or behind the last one. `lead_ns`: how much passes could hide.
  int64_t LeftNs(double lead_ns) const;
  // The shortest that it can be.
  int64_t LeastLeftNs() const;

  // How many times as long as `whole_ns`, which is above 0, all rounds take where these passes leave so much
  // of them: LeftNs of the least of their leads, the other way round. Without passes nothing is hidden.
  double FactorOf(double left_ns, absl::Span<const PassBeside> passes) const;
};

}  // namespace penstock::core
