// Says what does not fit in memory: which sample or micro-batch, on which stage, bytes needed and bytes
// there.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"
#include "planner/core/search/micro_batch_table.h"

namespace penstock::core {

// Bytes that a stage needs to run one micro-batch alone, with as much recompute as the mode allows; what lies
// on the stage whatever it runs is counted.
int64_t BytesAlone(const CostModel& costs, int stage, const StageMemory& memory, RecomputeMode mode);

// "batch.samples[3]: 16000 tokens do not fit on stage 0: needs 95000000000 bytes, limit 80000000000".
std::string DescribeSample(const CostModel& costs, const Job& job, const MicroBatchTable& table, int slot,
                           int stage);

// The micro-batch of `slots` and the stage that lack most, in the same words. Says so when every micro-batch
// fits alone.
std::string DescribeMicroBatches(const CostModel& costs, const Job& job, const MicroBatchTable& table,
                                 absl::Span<const int> slots);

// "shape [1, 0, 4096]" for a padded rectangle, "4096 tokens" for a packed micro-batch.
std::string DescribeShape(const TokenSums& sums);

// What lies outside of the profile, and what to do about it.
std::string DescribeUnknownShape(const TokenSums& sums);

}  // namespace penstock::core
