#include "planner/core/foresee/foreseen_batch.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/footprint/packed_starts.h"
#include "planner/core/foresee/foreseen_size.h"
#include "planner/core/search/linear_pipeline.h"
#include "planner/core/search/schedule_space.h"
#include "planner/core/search/starts.h"

namespace penstock::core {
namespace {

// Samples are all about as long as the longest where they are so many times its share of all tokens at most.
constexpr double kEven = 1.1;

// Of a replica, below which the dynamic policy's micro-batches are not foreseen.
constexpr int64_t kManySamples = 128;

// A plan may have one micro-batch in so many more than was told.
constexpr int64_t kMoreThanTold = 20;

// Whether the policy decides how many samples a micro-batch has, and whether that can be foreseen.
bool IsForeseeable(const Job& job, const PlanningShape& shape, bool even) {
  switch (job.policy) {
    case Policy::kPadding:
      return job.micro_batch_size == 0;
    case Policy::kDynamic:
      return even && shape.samples >= kManySamples * shape.replicas;
    default:
      return even && job.token_cap == 0;
  }
}

// Where it decides what planning takes; else 0.
int ForeseenSize(const Job& job, const ScheduleSpace& space, absl::Span<const SampleTokens> tokens,
                 const PlanningShape& shape) {
  const bool even = static_cast<double>(shape.samples) <= kEven * shape.longest_fill;
  if (tokens.empty() || !IsForeseeable(job, shape, even)) return 0;
  // Planning that takes so little is not worth a look.
  if (FootprintOf(shape).planning_bytes <= kFewestPlanningBytes) return 0;
  return ForeseeSize(space, job, tokens, even ? Lengths::kEven : Lengths::kUneven);
}

// Without what is foreseen.
PlanningShape RoughShape(const Job& job, const CostModel& costs, const Batch& batch,
                         const ScheduleSpace& space) {
  PlanningShape shape;
  shape.samples = static_cast<int64_t>(batch.samples.size());
  shape.replicas = job.topology.replicas();
  shape.stages = costs.stages();
  shape.positions = costs.positions();
  shape.group = job.topology.shape().group.ranks();
  shape.context = job.topology.shape().group.context;
  shape.searches = job.policy == Policy::kDynamic;
  TokenSums all;
  double longest = 1;
  std::vector<double> lengths;
  lengths.reserve(batch.samples.size());
  for (const SampleTokens& sample : batch.samples) {
    AddPacked(sample, &all);
    lengths.push_back(static_cast<double>(sample.source) + sample.target);
    longest = std::max(longest, lengths.back());
  }
  shape.longest_fill = (all.source + all.target) / longest;
  if (shape.searches) shape.packed = PackedStartMicroBatches(lengths);
  shape.roomy = RoomyMicroBatches(space, ShareOf(all, 1.0 / static_cast<double>(shape.replicas)));
  if (job.policy == Policy::kPadding) shape.micro_batch_size = std::max(1, job.micro_batch_size);
  return shape;
}

}  // namespace

PlanningShape ShapeOfBatch(const Job& job, const CostModel& costs, const Batch& batch) {
  const ScheduleSpace space(costs, job, AvailableBytes(job, costs));
  PlanningShape shape = RoughShape(job, costs, batch, space);
  if (const int foreseen = ForeseenSize(job, space, batch.samples, shape); foreseen > 0)
    shape.micro_batch_size = foreseen;
  return shape;
}

Job AsForeseen(const Job& job, const CostModel& costs, const Batch& batch) {
  Job foreseen = job;
  if (job.policy == Policy::kDynamic) return foreseen;
  const ScheduleSpace space(costs, job, AvailableBytes(job, costs));
  const PlanningShape shape = RoughShape(job, costs, batch, space);
  foreseen.foreseen_micro_batch_size = ForeseenSize(job, space, batch.samples, shape);
  if (foreseen.foreseen_micro_batch_size > 0 || job.micro_batch_size > 0 || job.token_cap > 0)
    return foreseen;
  const PlanningFootprint told = FootprintOf(shape);
  if (told.planning_bytes > kFewestPlanningBytes)
    foreseen.most_micro_batches = told.micro_batches + told.micro_batches / kMoreThanTold;
  return foreseen;
}

}  // namespace penstock::core
