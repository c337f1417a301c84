// Into which sizes of buckets the gradients of a job may go (PlanningOptions.gradient_bucket_bytes), and
// which of them is planned to be the fastest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/run_tasks.h"

namespace penstock::cli {

// Whether ranks sum gradients at all, which is what buckets are of.
bool SumsGradients(const v1::JobSpec& job);

// The size that the job names, or the one that its workers have where it names none.
uint64_t BucketBytesOf(const v1::JobSpec& job);

// Other sizes whose buckets differ from those and from each other, ascending; the last one may be that of one
// bucket for all.
std::vector<uint64_t> OtherBucketSizes(const v1::JobSpec& job);

// "16 MiB"; "one": of one for all.
std::string BucketName(uint64_t bytes);

// Goes from `start` to its neighbours, first up and else down, as long as they take no more; of those that
// take the same the first one counts. `sizes`: ascending, with `start`. `time_of`: each is asked of once at
// most.
absl::StatusOr<uint64_t> WalkToFastest(absl::Span<const uint64_t> sizes, uint64_t start,
                                       const std::function<absl::StatusOr<int64_t>(uint64_t)>& time_of);

struct SizedBuckets {
  uint64_t bytes = 0;
  // Sum over the batches, with buckets of this size named.
  int64_t planned_ns = 0;
  // The same of the size that the job has anyway.
  int64_t before_ns = 0;
};

// The size that is planned to be the fastest: found on the first batch, some plans of it, and planned for
// all. Of a job of one mesh. `stages`: where they are, so that none are chosen for each size. `before_ns`:
// that of SizedBuckets, where it is known. Nothing: there are no sizes to choose from, or passes hide nothing
// of sums. Possible errors: those of planning.
absl::StatusOr<std::optional<SizedBuckets>> FastestBuckets(const v1::JobSpec& job, const v1::Topology& stages,
                                                           absl::Span<const v1::Batch> batches,
                                                           const core::RunTasks& run_tasks,
                                                           std::optional<int64_t> before_ns = {});

}  // namespace penstock::cli
