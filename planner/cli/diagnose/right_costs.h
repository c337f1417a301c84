// What right costs would bring a job whose costs are wrong.
#pragma once

#include "absl/status/status.h"
#include "planner/cli/diagnose/job_iterations.h"
#include "planner/core/diagnose/diagnose.h"

namespace penstock::cli {

// Plans batches of the job anew, if wrong costs are among the causes. Possible errors: those of
// core::GainOfRightCosts.
absl::Status AddGainOfRightCosts(const JobRecord& record, core::Diagnosis& diagnosis);

}  // namespace penstock::cli
