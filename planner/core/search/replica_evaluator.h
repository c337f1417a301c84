// The makespan of one replica whose micro-batches and their order are given: fits them in memory, then
// estimates.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/schedule/memory_fit.h"
#include "planner/core/schedule/pipeline_estimate.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "planner/core/search/micro_batch_table.h"

namespace penstock::core {

// What a replica that cannot run is said to take.
inline constexpr int64_t kInfeasibleNs = int64_t{1} << 61;

// Keeps its arrays between calls. Counts the work that it does.
class ReplicaEvaluator {
 public:
  // `available_bytes`: of each stage, for micro-batches. `first_rank`: of the replica, for the speed of its
  // links.
  ReplicaEvaluator(const CostModel& costs, std::vector<int64_t> available_bytes)
      : costs_(costs), available_(std::move(available_bytes)) {}

  // End of the last backward pass; kInfeasibleNs when memory is short or a shape is outside of the profile.
  // `slots`: in the order in which they enter the pipeline. `first_rank`: of the replica, for the speed of
  // its links.
  int64_t Makespan(const MicroBatchTable& table, absl::Span<const int> slots, int first_rank);

  // The same, with everything that the programs are made of.
  // False, and `pipeline` as it was, when it cannot run.
  bool MakePipeline(const MicroBatchTable& table, absl::Span<const int> slots, int first_rank,
                    ReplicaPipeline* pipeline);

  // Whether a stage could run a micro-batch at all: alone, with as much recompute as the mode allows.
  bool FitsAlone(const MicroBatchTable& table, int slot, int stage) const;

  // Passes and transfers that were simulated so far.
  int64_t simulated() const { return simulated_; }

  std::vector<int64_t>& available_bytes() { return available_; }

 private:
  void Gather(const MicroBatchTable& table, absl::Span<const int> slots, int first_rank);
  // True when the schedule runs fully ahead without more recompute than the mode starts from.
  bool FitsAsIs(const MicroBatchTable& table, absl::Span<const int> slots) const;
  // Fits memory one way and returns the estimate.
  int64_t TryFit(const MicroBatchTable& table, absl::Span<const int> slots, bool prefer_waiting, bool serial);
  int64_t Estimate();
  // Whether the fast estimate would be too far off.
  bool LinksAreBusy() const;

  const CostModel& costs_;
  std::vector<int64_t> available_;
  PipelineEstimate estimate_;
  PipelineTimeline timeline_;
  PipelineCosts pipeline_;
  PipelineMemory memory_;
  std::vector<StageRecompute> recompute_;
  PassOrder order_;
  RankPasses passes_;
  MemoryFitOptions fit_;
  int64_t simulated_ = 0;
};

}  // namespace penstock::core
