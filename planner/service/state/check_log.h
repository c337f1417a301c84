// Whether what a store gives back can be the log of a job. Stores keep checksums, so what fails here was
// written by a planner with an error, or by nobody who should.
#pragma once

#include "absl/status/status.h"
#include "penstock/store/v1/job_log.pb.h"
#include "planner/service/state/job_state.h"

namespace penstock {

// Every function's error is DATA_LOSS and names the field.

// Of the first event.
absl::Status CheckRegistered(const store::v1::JobRegistered& registered);
absl::Status CheckSnapshot(const store::v1::JobSnapshot& snapshot);
// Of an event that follows `state`: JobState::Apply takes what passes.
absl::Status CheckEvent(const JobState& state, const store::v1::Event& event);

}  // namespace penstock
