// From a batch to a candidate, by the policy of the job. Every search is bounded by counted work.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "planner/core/search/candidate.h"

namespace penstock::core {

// Samples a micro-batch, or the best of 1, 2, 4, ...; order of arrival, padded.
Candidate PlanPadding(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                      ReplicaEvaluator* evaluator);

// First-fit decreasing to a cap, or the best of a range of caps; packed.
Candidate PlanPacked(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                     ReplicaEvaluator* evaluator);

// Samples in order of arrival until the cap is reached; packed.
Candidate PlanTokenBudget(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                          ReplicaEvaluator* evaluator);

// By predicted time: see dynamic_policy.h.
Candidate PlanByPolicy(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                       ReplicaEvaluator* evaluator);

}  // namespace penstock::core
