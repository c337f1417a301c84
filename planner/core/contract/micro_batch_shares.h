// What each context rank of a stage group has of a plan's micro-batch, for costs.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/model/share.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/nodes.h"

namespace penstock::core {

// By context rank: of all rows, and of those of each part that passes go through in turn (no parts where it
// is one).
struct SharesInParts {
  std::vector<Share> whole;
  std::vector<std::vector<Share>> parts;
  // Backward passes do not go in parts.
  bool whole_backward = false;
};

// As it is computed, padding included. The samples of the micro-batch must be in the batch; windows: of the
// job. Possible errors: INVALID_ARGUMENT (the spans are not one for each row, inside of the group; the parts
// do not hold each row once).
absl::StatusOr<SharesInParts> ComputedShares(const v1::MicroBatch& micro_batch, const Batch& batch,
                                             const Nodes& nodes, int contexts,
                                             const AttentionWindows& windows);

// The same of the samples' own tokens, each on the span of its row.
absl::StatusOr<SharesInParts> RealShares(const v1::MicroBatch& micro_batch, const Batch& batch,
                                         const Nodes& nodes, int contexts, const AttentionWindows& windows);

}  // namespace penstock::core
