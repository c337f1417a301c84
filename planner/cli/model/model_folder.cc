#include "planner/cli/model/model_folder.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

constexpr const char* kImportedJob = "imported";

std::string RunFile(const std::string& path) { return absl::StrCat(path, "/run.json"); }

std::string FirstCheckpoint(const std::string& path) { return absl::StrCat(path, "/checkpoints/iteration-0"); }

}  // namespace

std::string ImportedTensors(const std::string& path) { return FirstCheckpoint(path) + "/rank-0.safetensors"; }

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path) {
  absl::StatusOr<std::string> json = ReadFile(RunFile(path));
  if (absl::IsNotFound(json.status())) {
    return absl::NotFoundError(
        absl::StrCat("'", RunFile(path),
                     "' is not there: name the folder of a run, or one that penstock model import made"));
  }
  if (!json.ok()) return json.status();
  v1::JobSpec job;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*json, &job);
  if (!parsed.ok())
    return absl::InvalidArgumentError(absl::StrCat("'", RunFile(path), "': ", parsed.ToString()));
  const std::string checkpoints = absl::StrCat(path, "/checkpoints");
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Checkpoint> newest,
                            NewestCheckpoint(checkpoints, CheckpointDepth::kSizes, nullptr));
  if (!newest.has_value())
    return absl::NotFoundError(absl::StrCat("'", checkpoints, "' has no complete checkpoint"));
  return ModelFolder{job.model(), newest->path, newest->manifest.next_iteration};
}

absl::Status WriteModelFolder(const std::string& path, const v1::ModelSpec& model) {
  v1::JobSpec job;
  job.set_job_id(kImportedJob);
  *job.mutable_model() = model;
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  const auto printed = google::protobuf::util::MessageToJsonString(job, &json, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(RunFile(path), json));
  const nlohmann::ordered_json manifest = {{"format", 1}, {"job", kImportedJob}, {"next_iteration", 0},
                                           {"ranks", 1},  {"pipeline", 1},       {"data", 1}};
  return WriteFileAtomically(FirstCheckpoint(path) + "/manifest.json", manifest.dump(2) + "\n");
}

}  // namespace penstock::cli
