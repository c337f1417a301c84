// Whether requests are well-formed, before the engine sees them. Pure.
//
// Every error is INVALID_ARGUMENT, names the field and says what it must be. What depends on the job (rank,
// iteration, memory) is the engine's to judge.
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

absl::Status Validate(const v1::RegisterJobRequest& request);
absl::Status Validate(const v1::SubmitBatchesRequest& request);
absl::Status Validate(const v1::PlanBatchRequest& request);
absl::Status Validate(const v1::ReviseCostsRequest& request);
absl::Status Validate(const v1::StreamProgramsRequest& request);
absl::Status Validate(const v1::ReportIterationRequest& request);
absl::Status Validate(const v1::RegisterWorkerRequest& request);
absl::Status Validate(const v1::HeartbeatRequest& request);
absl::Status Validate(const v1::GetJobRequest& request);
absl::Status Validate(const v1::GetIterationRequest& request);
absl::Status Validate(const v1::ChangeStrategiesRequest& request);
absl::Status Validate(const v1::DrainJobRequest& request);
absl::Status Validate(const v1::DeleteJobRequest& request);

}  // namespace penstock
