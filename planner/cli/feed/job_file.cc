#include "planner/cli/feed/job_file.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path) {
  const absl::StatusOr<std::string> json = ReadFile(path);
  if (!json.ok()) return AnnotateError(json.status(), "--job-file");
  v1::JobSpec job;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*json, &job);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--job-file '", path, "' is no penstock.v1.JobSpec: ", std::string(parsed.message())));
  }
  if (!job.job_id().empty()) return job;
  return absl::InvalidArgumentError(absl::StrCat("--job-file '", path, "': jobId is missing"));
}

}  // namespace penstock::cli
