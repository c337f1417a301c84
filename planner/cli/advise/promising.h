// Which meshes are worth a tournament, where there are many: 64 GPUs have some seventy.
//
// Meshes are looked at in the order of their lower bounds, which take next to no time, and one way to train
// on each is planned with effort fast, until the bounds are above what has been found. Those are kept that
// may be the best.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/parallel/task_pool.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/advise/candidates.h"

namespace penstock::cli {

struct Promising {
  // In the order of the candidates. Ways that cannot be bounded, because nothing fits, are among the first.
  std::vector<Candidate> kept;
  std::vector<Candidate> left_out;
};

// Possible errors: those of planning that are no fault of the mesh.
absl::StatusOr<Promising> FindPromising(const v1::JobSpec& base, const std::vector<Candidate>& candidates,
                                        const v1::Batch& batch, TaskPool* pool);

}  // namespace penstock::cli
