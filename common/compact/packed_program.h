// Answers with columns made into those without: what a reader that says compact_version does with each.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// Puts program, micro-batches and samples where they are without columns, and takes these away; so in its
// validation. Nothing happens to one without. Possible errors: INVALID_ARGUMENT and RESOURCE_EXHAUSTED, named
// by iteration and column: the columns make no sense, or take more than a program that does.
absl::Status UnpackProgram(v1::StreamProgramsResponse* response);

// The same for the columns of a plan's programs, those of its validation included (PlanBatchResponse,
// GetIterationResponse).
absl::Status UnpackPrograms(google::protobuf::RepeatedPtrField<std::string>* columns, v1::Plan* plan);

}  // namespace penstock
