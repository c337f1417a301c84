// Judges layouts of stages by planning typical batches with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/core/parallel/stop.h"
#include "planner/core/stages/stage_balance.h"

namespace penstock::core {

class LayoutJudge {
 public:
  // `profile` must outlive the judge. Its answers are of no worth when `stop` has stopped it.
  LayoutJudge(const Profile& profile, const Job& job, StopToken stop = {});

  StageLayout Even(std::vector<int32_t> placement) const;
  // The even division of the layers, balanced by time within memory.
  StageLayout Balanced(std::vector<int32_t> placement) const;

  const StopToken& stop() const { return stop_; }

  // Different batches of the size of a typical one, or of a replica's share of it. At least one.
  size_t batches() const { return batches_.size(); }

  // Makespan of a batch; kInfeasibleNs where it does not fit.
  int64_t Makespan(const StageLayout& layout, size_t batch, Effort effort) const;

  // Time of the busiest rank for a typical micro-batch.
  int64_t BusiestRank(const StageLayout& layout) const;

 private:
  // A micro-batch as a replica would have it.
  TokenSums TypicalMicroBatch() const;

  const Profile profile_;
  // Without its typical samples.
  const Job job_;
  StopToken stop_;
  std::vector<std::vector<SampleTokens>> batches_;
};

}  // namespace penstock::core
