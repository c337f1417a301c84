// A job with strategies, as a job for each of them.
//
//   PENSTOCK_RETURN_IF_ERROR(CheckStrategies(job));
//   for (int i = 0; i < StrategyCount(job); ++i) Use(SpecOfStrategy(job, i));
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// 1 where the job has none: its mesh alone.
int StrategyCount(const v1::JobSpec& job);

// That they are strategies of one job: what each of them may be alone, JobFromProto says. Possible errors:
// INVALID_ARGUMENT (names the field), UNIMPLEMENTED (a strategy of several meshes).
absl::Status CheckStrategies(const v1::JobSpec& job);

// The job as it would be with this strategy alone, which has passed CheckStrategies.
v1::JobSpec SpecOfStrategy(const v1::JobSpec& job, int strategy);

}  // namespace penstock::core
