// Cost profiles as files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// Either kind of file that ParseProfile reads (planner/core/cost/profile_reader.h). `what` stands before the
// path in the message about a file that is no profile: the flag that names it, say. Possible errors: those of
// ReadFile and ParseProfile.
absl::StatusOr<v1::ProfileFile> ReadProfileFile(absl::string_view what, const std::string& path);

// As ReadProfileFile reads it. Possible errors: those of WriteFileAtomically.
absl::Status WriteProfileFile(const v1::ProfileFile& file, const std::string& path);

}  // namespace penstock::cli
