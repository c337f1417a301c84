// The mesh, or the meshes side by side, that a run goes on with when it has fewer ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

struct RanksThatAreLeft {
  uint32_t ranks = 0;
  // So many must be used.
  uint32_t least = 0;
  // Whether meshes side by side will do: the ranks validate on a single mesh alone.
  bool side_by_side = true;
};

// Of all meshes of so many ranks, and of those of fewer with the degrees of `job` or half, a quarter, ... of
// them, the one whose plans for `batches` are the fastest together; or meshes side by side on all of the
// ranks where these are faster by a per cent: pp 4 + pp 3 on 7 ranks. Parameters are in shares then. Tensor
// degrees are those that the costs of `job` know, and experts are divided by as many ranks, or by fewer where
// a stage group has no more. Stages that are given count for meshes of their depth alone. `job` is of all
// ranks and has its cost profile, whose slow ranks and links do not count: numbers name others now. Plans
// with effort fast. `say` is told why meshes side by side were not looked at, where that is an error.
// Possible errors: RESOURCE_EXHAUSTED (nothing of so many ranks can be planned: says why).
absl::StatusOr<v1::Strategy> FastestStrategy(const v1::JobSpec& job, absl::Span<const v1::Batch> batches,
                                             const RanksThatAreLeft& left,
                                             const std::function<void(const std::string&)>& say);

}  // namespace penstock::cli
