// A micro-batch of a program, as the contract has it, as one that passes run through. Private to this folder.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::worker {

enum class ProgramKind : uint8_t { kTraining, kValidation };

// `message` has its samples, and the layers of each stage. Possible errors: INVALID_ARGUMENT (its samples are
// not in the batch, or not where its layout says; names the field), UNIMPLEMENTED (a layout that is not known
// to this worker).
absl::StatusOr<MicroBatch> MicroBatchFromProto(const v1::StreamProgramsResponse& message,
                                               const v1::MicroBatch& proto, const JobConfig& job,
                                               ProgramKind kind);

}  // namespace penstock::worker
