// The makespan of a pipeline, fast: what searches call thousands of times.
//
// Exact but for one thing: activations and gradients that cross the same link in opposite directions do not
// wait for each other. Where transfers are short against passes, as they should be, it equals
// PipelineTimeline.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// Keeps its arrays between runs.
class PipelineEstimate {
 public:
  // End of the last backward pass, nanoseconds. 0 without micro-batches.
  int64_t Run(const PipelineCosts& costs, const PassOrder& order);

 private:
  // Runs the passes of a stage that are ready; true when it ran any.
  void Advance(const PipelineCosts& costs, const PassOrder& order, int stage);

  struct StageState {
    int32_t forwards = 0;
    int32_t backwards = 0;
    int64_t free_ns = 0;
    // When the two directions of the link to the next stage are free.
    int64_t activation_link_ns = 0;
    int64_t gradient_link_ns = 0;
  };

  std::vector<StageState> stages_;
  // When the input of a pass is on the stage: activation, gradient; [micro_batch * stages + stage].
  std::vector<int64_t> activation_ns_;
  std::vector<int64_t> gradient_ns_;
};

}  // namespace penstock::core
