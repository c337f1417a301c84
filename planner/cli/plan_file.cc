#include "planner/cli/plan_file.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

absl::Status WritePlanFile(const std::string& path, const v1::PlannedBatch& planned) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(planned, &text, options);
  if (!status.ok())
    return absl::InternalError(absl::StrCat("cannot write the plan as JSON: ", status.ToString()));
  return WriteFileAtomically(path, text);
}

absl::StatusOr<v1::PlannedBatch> ReadPlanFile(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  v1::PlannedBatch planned;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &planned);
  if (!status.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is not a plan file: ", std::string(status.message())));
  if (!planned.has_batch() || !planned.has_plan())
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "' lacks \"batch\" or \"plan\": give a file that `penstock plan --out` wrote"));
  return planned;
}

}  // namespace penstock::cli
