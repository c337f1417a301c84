#include "planner/cli/profile_file.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/cost/profile_reader.h"

namespace penstock::cli {

absl::StatusOr<v1::ProfileFile> ReadProfileFile(absl::string_view what, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  absl::StatusOr<v1::ProfileFile> file = core::ParseProfile(json);
  if (!file.ok()) return AnnotateError(file.status(), absl::StrCat(what, " '", path, "'"));
  return file;
}

absl::Status WriteProfileFile(const v1::ProfileFile& file, const std::string& path) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(file, &json, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return WriteFileAtomically(path, json);
}

}  // namespace penstock::cli
