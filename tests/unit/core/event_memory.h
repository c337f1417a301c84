// The tests' own account of memory: from what happens when, as proto/penstock/v1/execution.md says what each
// computation and transfer takes and gives back. It knows neither instructions nor programs, so that a fault
// in how the product makes or counts them shows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/schedule/pipeline_timeline.h"

namespace penstock::core {

// For each rank of the pipeline the most that micro-batches take at once, bytes; static memory not among
// them. `events` are those of a timeline of `replica`, or a part of them in their order. Buffers that were
// sent are given back when the next pass of their rank starts.
std::vector<int64_t> PeakBytes(const CostModel& costs, const ReplicaPipeline& replica,
                               absl::Span<const PipelineEvent> events);

}  // namespace penstock::core
