// What each context rank of a stage group has of a plan's micro-batch, for costs.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/model/share.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/nodes.h"

namespace penstock::core {

// By context rank.
struct MicroBatchShares {
  // As it is computed, padding included.
  std::vector<Share> computed;
  // Of the samples' own tokens, each on the span of its row.
  std::vector<Share> real;
  // The same of each part that passes go through in turn; empty lists where it is one.
  std::vector<std::vector<Share>> computed_parts;
  std::vector<std::vector<Share>> real_parts;
};

// The samples of the micro-batch must be in the batch; windows: of the job. Possible errors: INVALID_ARGUMENT
// (the spans are not one for each row, inside of the group; the parts do not hold each row once).
absl::StatusOr<MicroBatchShares> SharesOfMicroBatch(const v1::MicroBatch& micro_batch, const Batch& batch,
                                                    const Nodes& nodes, int contexts,
                                                    const AttentionWindows& windows);

}  // namespace penstock::core
