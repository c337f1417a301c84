#include "planner/cli/model/model_folder.h"

#include <google/protobuf/util/json_util.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/files.h"
#include "common/files/folder_changes.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/base_folder.h"

namespace penstock::cli {
namespace {

std::string Checkpoints(const std::string& path) { return absl::StrCat(path, "/checkpoints"); }

}  // namespace

std::string ModelFile(const std::string& path) { return absl::StrCat(path, "/model.json"); }

bool HasModel(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(ModelFile(path), ignored);
}

absl::StatusOr<v1::ModelSpec> ReadModel(const std::string& path) {
  const std::string file = ModelFile(path);
  const absl::StatusOr<std::string> json = ReadFile(file);
  if (absl::IsNotFound(json.status())) {
    return absl::NotFoundError(absl::StrCat(
        "'", file, "' is not there: name the folder of a run, or one that penstock model import made"));
  }
  if (!json.ok()) return json.status();
  v1::ModelSpec model;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*json, &model);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("'", file, "': ", parsed.ToString()));
  return model;
}

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::ModelSpec model, ReadModel(path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Checkpoint> newest,
                            NewestCheckpoint(Checkpoints(path), CheckpointDepth::kSizes, nullptr));
  if (!newest.has_value())
    return absl::NotFoundError(absl::StrCat("'", Checkpoints(path), "' has no complete checkpoint"));
  ModelFolder folder = {std::move(model), newest->path, newest->manifest.next_iteration};
  if (!folder.model.has_adapters()) return folder;
  folder.base = BaseFolder(path);
  if (std::filesystem::exists(folder.base)) return folder;
  return absl::NotFoundError(
      absl::StrCat("'", folder.base, "' is not there: what the adapters of the model are beside"));
}

absl::Status WriteModel(const std::string& path, const v1::ModelSpec& model) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  const auto printed = google::protobuf::util::MessageToJsonString(model, &json, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return WriteFileAtomically(ModelFile(path), json);
}

std::string ImportedTensors(const std::string& path) {
  return PartPath(PartialCheckpointPath(Checkpoints(path), 0), 0);
}

absl::StatusOr<std::string> PrepareImport(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(Checkpoints(path), error) &&
      !std::filesystem::is_empty(Checkpoints(path), error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", Checkpoints(path), "' has checkpoints: name another folder, or remove it"));
  }
  const std::string target = ImportedTensors(path);
  std::filesystem::create_directories(std::filesystem::path(target).parent_path(), error);
  if (error) return absl::PermissionDeniedError(absl::StrCat("making '", target, "': ", error.message()));
  return target;
}

absl::Status CompleteImport(const std::string& path) {
  const CheckpointManifest of = {.job_id = "imported", .ranks = 1, .pipeline = 1, .data = 1};
  PENSTOCK_RETURN_IF_ERROR(RecordPart(Checkpoints(path), 0, of, RealFolderChanges()));
  return CompleteCheckpoint(Checkpoints(path), 0, kKeptCheckpoints, RealFolderChanges());
}

}  // namespace penstock::cli
