// Says what does not fit in memory: which sample or micro-batch, on which stage, bytes needed and bytes
// there.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"
#include "planner/core/search/micro_batch_table.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

// "stage 2", or "stages 0, 3 of rank 1".
std::string DescribeStages(const CostModel& costs, int rank);

// "batch.samples[3]: 16000 tokens do not fit on stage 0: needs 95000000000 bytes, limit 80000000000". With as
// much recompute as the mode allows; what lies on the rank whatever it runs is counted. Where ranks have
// limits of their own, of the replica that lacks least, with the rank: "limit 80000000000 of rank 4".
std::string DescribeSample(const ScheduleSpace& space, const Job& job, uint32_t sample,
                           const TokenSums& sums);

// The micro-batch of `slots`, of the replica, and the rank that lack most, in the same words. Says so when
// every micro-batch fits alone.
std::string DescribeMicroBatches(const ScheduleSpace& space, const Job& job, const MicroBatchTable& table,
                                 absl::Span<const int32_t> slots, int replica);

// "shape [1, 0, 4096]" for a padded rectangle, "4096 tokens" for a packed micro-batch.
std::string DescribeShape(const TokenSums& sums);

// What lies outside of the profile, and what to do about it.
std::string DescribeUnknownShape(const TokenSums& sums);

}  // namespace penstock::core
