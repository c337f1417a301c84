// `penstock feed`: hands the batches of a job to a planner, in order and as far ahead as it takes them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

struct FeedOptions {
  // The planner, the data and, unless `job_file` has it, the job.
  UpOptions job;
  // A penstock.v1.JobSpec as JSON.
  std::string job_file;
  // Seconds that the planner may be silent.
  uint32_t planner_timeout_s = 3600;
};

// Registers the job where the planner does not have it, and submits its batches from where they end. Which
// samples are in a batch follows from the data, the seed and the iteration alone, so it may be killed at any
// moment and started again: no batch is submitted twice or with other content. Blocks until the planner has
// all of them, or until SIGINT or SIGTERM. Possible errors: INVALID_ARGUMENT, NOT_FOUND (a flag or a file;
// named), ALREADY_EXISTS (the planner has this job with another specification, or its last batch is another
// one), FAILED_PRECONDITION (the job drains: it takes no more), UNAVAILABLE (no planner), CANCELLED (a
// signal).
absl::Status RunFeed(FeedOptions options);

}  // namespace penstock::cli
