// From a batch to a candidate, by the policy of the job. Every search is bounded by counted work.
//
// The policies that others use are judged by the same simulated makespan as the dynamic one, and get the best
// micro-batch size, row length or cap that a search finds, unless the job gives one; recompute is as the job
// says. Where Job::foreseen_micro_batch_size is not 0, padding makes micro-batches of that size, and the
// others none that are smaller; where Job::most_micro_batches is not 0, the others make no more than that: if
// those fit in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/search/candidate.h"
#include "planner/core/search/dynamic_look.h"
#include "planner/core/search/sight.h"

namespace penstock::core {

// Of `count` samples or rows, how many may make a micro-batch, ascending: the number that the job gives, or
// 1, 2, 3, 4, 6, 8, 12, ...
std::vector<int> MicroBatchSizes(const Job& job, int count);

// Samples a micro-batch, or the best of 1, 2, 3, 4, 6, 8, ...; order of arrival, padded.
Candidate PlanPadding(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                      ReplicaEvaluator* evaluator);

// Rows of one length for the whole batch, filled first-fit in order of arrival without cutting a sample, and
// rows a micro-batch. The length is the cap (never below the longest sample), or the best of a range of
// multiples of the longest sample; rows a micro-batch as in PlanPadding.
Candidate PlanConcatenated(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                           ReplicaEvaluator* evaluator);

// First-fit decreasing to a cap, or the best of a range of caps; packed.
Candidate PlanPacked(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                     ReplicaEvaluator* evaluator);

// Samples in order of arrival until the cap is reached; packed.
Candidate PlanTokenBudget(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                          ReplicaEvaluator* evaluator);

// Any of these, or dynamic_policy.h.
Candidate PlanByPolicy(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                       const RunTasks& run_tasks);

// What that is about to take, seen closer and closer for a part of the work where the policy is the dynamic
// one (dynamic_look.h); another one searches to its end at a glance.
class PolicyLook {
 public:
  // All must outlive it.
  PolicyLook(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens);

  // Nanoseconds; kInfeasibleNs: nothing that fits is seen. Of no worth when the space is stopped.
  int64_t At(Sight sight, const RunTasks& run_tasks);

 private:
  const ScheduleSpace& space_;
  const Job& job_;
  absl::Span<const SampleTokens> tokens_;
  DynamicLook dynamic_;
  std::optional<int64_t> found_ns_;
};

}  // namespace penstock::core
