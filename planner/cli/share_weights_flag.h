// --share-weights: how large each rank's share of the parameters is beside the others', for ever.
//
//   penstock plan ... --parameter-shares --share-weights 3,1,0,2     one a rank; 0: no share
//   penstock up ... --strategies auto --share-weights auto           chosen for batches of the data
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/run_tasks.h"

namespace CLI {
class App;
}

namespace penstock::cli {

struct ShareWeightsFlag {
  // By rank; empty: all alike.
  std::vector<uint32_t> weights;
  // They are yet to be chosen (ChooseWeightsOfShares).
  bool choose = false;

  // This object must outlive the parse.
  void AddTo(CLI::App& command);
};

// "3,1,0,2", as the flag takes it.
std::string ShareWeightsText(absl::Span<const uint32_t> weights);

// Where they are to be chosen, the job gets those that are best for the batches, and what is returned says
// what they are and what they gain; empty otherwise. The job has profile, mesh or strategies and options.
// Possible errors: those of core::ChooseShareWeights.
absl::StatusOr<std::string> ChooseWeightsOfShares(const ShareWeightsFlag& flag,
                                                  absl::Span<const v1::Batch> batches,
                                                  const core::RunTasks& run_tasks, v1::JobSpec* job);

}  // namespace penstock::cli
