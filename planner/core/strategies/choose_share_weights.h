// Chooses the weights of a job's shares (PlanningOptions.share_weights), which it then has for ever.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const core::ShareWeightsChoice choice,
//                             core::ChooseShareWeights(job, batches));
//   SetShareWeights(choice, &job);
//
// Weights of several kinds are tried by planning the batches with them: all alike; by how fast ranks update;
// and such that the fullest rank is as empty as it can be, which lets others keep more of their
// micro-batches, or makes a job fit that would not. Pure, as Planner is.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// What batches take with some weights.
struct WeightsTrial {
  // By rank; empty: all alike.
  std::vector<uint32_t> weights;
  // The mean of the batches, nanoseconds. Slow ranks step as slowly as they run passes.
  double iteration_ns = 0;
  // Of the fullest rank, in any of them.
  int64_t peak_bytes = 0;
};

struct ShareWeightsChoice {
  WeightsTrial chosen;
  // With shares that are all alike; without any time where nothing fits so.
  WeightsTrial alike;

  bool alike_fits() const { return alike.iteration_ns > 0; }
};

// Of a job with parameter_shares and its strategies, if it has some; what it says of weights does not count.
// Weights that differ are chosen where they make the batches faster by half a per cent, or leave a hundredth
// of the limit more of the fullest rank's memory free and make the batches no slower than a thousandth; and
// never where a sample that equal shares can hold would no longer fit. Plans
// each batch up to about eight times, with effort normal where the job's is thorough. Possible errors: what
// is wrong with the job, or with a batch, with shares that are alike, where no weights help; CANCELLED.
absl::StatusOr<ShareWeightsChoice> ChooseShareWeights(const v1::JobSpec& job,
                                                      absl::Span<const v1::Batch> batches,
                                                      const RunTasks& run_tasks = RunSerially,
                                                      StopToken stop = {});

// The job has the chosen ones; none where they are alike.
void SetShareWeights(const ShareWeightsChoice& choice, v1::JobSpec* job);

}  // namespace penstock::core
