// The mesh, or the meshes side by side, that a run goes on with when it has fewer ranks.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

// Of all meshes of `ranks` ranks, and of those of fewer with the degrees of `job` or half, a quarter, ... of
// them, the one whose plans for `batches` are the fastest together; or meshes side by side on all of `ranks`
// where these are faster by a per cent: pp 4 + pp 3 on 7 ranks. Parameters are in shares then. Tensor degrees
// are those that the costs of `job` know, and experts are divided by as many ranks, or by fewer where a stage
// group has no more. It has at least `least` ranks. `job` has its cost profile. Plans with effort fast.
// Possible errors: RESOURCE_EXHAUSTED (nothing of so many ranks can be planned: says why).
absl::StatusOr<v1::Strategy> FastestStrategy(const v1::JobSpec& job, absl::Span<const v1::Batch> batches,
                                             uint32_t ranks, uint32_t least);

}  // namespace penstock::cli
