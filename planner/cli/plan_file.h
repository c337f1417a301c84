// Plans as files: the JSON form of v1::PlannedBatch.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

// Possible errors: those of WriteFileAtomically.
absl::Status WritePlanFile(const std::string& path, const v1::PlannedBatch& planned);

// Possible errors: NOT_FOUND, INVALID_ARGUMENT (not the JSON of a PlannedBatch, or without batch or plan);
// names the path.
absl::StatusOr<v1::PlannedBatch> ReadPlanFile(const std::string& path);

}  // namespace penstock::cli
