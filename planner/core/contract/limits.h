// The largest requests that are planned, far above what anybody trains. They are asked first, before anything
// is computed or allocated in proportion. Within them a request may still take minutes: whoever cannot wait
// stops it (parallel/stop.h).
#pragma once

#include <cstdint>

namespace penstock::core {

// Of all stacks together.
inline constexpr uint32_t kMostLayers = 4096;
// Of all replicas, and of one.
inline constexpr uint32_t kMostRanks = 1 << 16;
inline constexpr uint32_t kMostPipelineRanks = 1024;
// Of a stage group.
inline constexpr uint32_t kMostTensorRanks = 64;
inline constexpr uint32_t kMostContextRanks = 1024;
// Of a pipeline; there may be several on a rank.
inline constexpr int kMostStages = 2048;
inline constexpr int kMostSamples = 1 << 20;
// Of a job, all that it ever had.
inline constexpr int kMostStrategies = 64;
// Samples of a batch times stages: the search keeps about 80 bytes for each, several times.
inline constexpr int64_t kMostSampleStages = 1 << 23;
inline constexpr int kMostTypicalSamples = 1 << 16;
// Of names and remarks in a job, and of all of it, in bytes: a planner keeps it for as long as the job.
inline constexpr int kMostCommentBytes = 4096;
inline constexpr int64_t kMostJobBytes = int64_t{8} << 20;
// Width of the residual stream and of attention, and attention heads.
inline constexpr uint32_t kMostWidth = 1 << 20;
inline constexpr uint32_t kMostFeedForwardWidth = 1 << 22;
inline constexpr uint32_t kMostExperts = 4096;
// Into which a micro-batch is cut where ranks divide experts.
inline constexpr uint32_t kMostParts = 4;
inline constexpr uint32_t kMostVocab = 1 << 24;
inline constexpr uint32_t kMostSequenceLength = 1 << 24;
// Of a micro-batch or a row.
inline constexpr uint32_t kMostTokenCap = 1 << 30;
// How large a rank's share is beside the others'.
inline constexpr uint32_t kMostShareWeight = 1 << 20;
// Of gradients that are summed as one: a terabyte.
inline constexpr uint64_t kMostGradientBucketBytes = uint64_t{1} << 40;
// Of one rank: a petabyte.
inline constexpr int64_t kMostMemoryBytes = int64_t{1} << 50;
// Of an iteration, nanoseconds: nearly ten hours. The checker's limit of all times (verify/timeline.h).
inline constexpr int64_t kMostPlanNs = int64_t{1} << 45;
// How many times slower than others of its kind a profile may call a link.
inline constexpr double kMostLinkSlowness = 10'000;
inline constexpr uint32_t kMostRelativePositionBuckets = 1 << 16;
// Names of a job, and what one sample weighs in the loss.
inline constexpr int kMostTasks = 1024;
inline constexpr double kMostLossWeight = 1e15;
// Of a job, and of everything that counts them.
inline constexpr uint64_t kMostIterations = uint64_t{1} << 48;

}  // namespace penstock::core
