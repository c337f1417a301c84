// Runs programs as a job's workers would, without a planner: the ranks are threads of this process, over
// Gloo. For plans that are not as a planner made them.
//
// Plain values only, so that this header goes together with protobuf.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::testing {

struct TrainedIteration {
  // Summed over the ranks.
  double loss = 0;
  // Before clipping.
  double gradient_norm = 0;
};

// `programs`: of each rank, one an iteration, from 0 on. `dataset`: a path without .idx and .bin. Gradients
// are written to a folder as workers write them (`--dump-gradients`). Possible errors: those of opening the
// dataset and of worker::Trainer::Run.
absl::StatusOr<std::vector<TrainedIteration>> TrainPrograms(
    const worker::JobConfig& job, const std::vector<std::vector<worker::Program>>& programs,
    const std::string& dataset, const std::string& gradients_dir);

}  // namespace penstock::testing
