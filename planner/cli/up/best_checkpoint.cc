#include "planner/cli/up/best_checkpoint.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/files.h"
#include "common/files/link_files.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/base_folder.h"
#include "planner/cli/model/kept_files.h"
#include "planner/cli/model/model_folder.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

absl::Status FolderError(absl::string_view what, const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(what, " '", path, "': ", error.message()));
}

absl::Status RemoveFolder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? FolderError("removing", path, error) : absl::OkStatus();
}

std::string ValidationRecordFile(const std::string& folder) {
  return absl::StrCat(folder, "/validation.json");
}

bool IsLoss(const nlohmann::json& json) {
  return json.is_object() && json.contains("loss") && json["loss"].is_number() &&
         json.contains("predicted_tokens") && json["predicted_tokens"].is_number_unsigned();
}

// What penstock-worker evaluate says of several datasets.
std::optional<std::vector<TaskLoss>> TasksOf(const nlohmann::json& json) {
  std::vector<TaskLoss> tasks;
  for (const nlohmann::json& task : json.value("datasets", nlohmann::json::array())) {
    if (!IsLoss(task) || !task.contains("name") || !task["name"].is_string()) return std::nullopt;
    tasks.push_back({.task = task["name"], .loss = task["loss"], .tokens = task["predicted_tokens"]});
  }
  return tasks;
}

}  // namespace

absl::StatusOr<ValidatedCheckpoint> ReadValidationRecord(const std::string& file) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::optional<std::vector<TaskLoss>> tasks;
  if (IsLoss(json)) tasks = TasksOf(json);
  if (!tasks.has_value())
    return absl::InvalidArgumentError(absl::StrCat("'", file, "' is no result of an evaluation"));
  return ValidatedCheckpoint{.next_iteration = json.value("next_iteration", uint64_t{0}),
                             .loss = json["loss"].get<double>(),
                             .tokens = json["predicted_tokens"].get<uint64_t>(),
                             .tasks = *std::move(tasks)};
}

std::string BestCheckpoint::copy() const { return absl::StrCat(run_dir_, "/validating"); }
std::string BestCheckpoint::folder() const { return absl::StrCat(run_dir_, "/best"); }

absl::StatusOr<BestCheckpoint> BestCheckpoint::Open(const std::string& run_dir, uint64_t first_iteration) {
  BestCheckpoint best(run_dir);
  if (first_iteration == 0) {
    PENSTOCK_RETURN_IF_ERROR(RemoveFolder(best.folder()));
    return best;
  }
  absl::StatusOr<ValidatedCheckpoint> kept = ReadValidationRecord(ValidationRecordFile(best.folder()));
  if (absl::IsNotFound(kept.status())) return best;
  PENSTOCK_ASSIGN_OR_RETURN(best.best_, std::move(kept));
  return best;
}

void BestCheckpoint::Judge(ValidatedCheckpoint& checkpoint) {
  checkpoint.best = best_.has_value() ? checkpoint.loss < best_->loss : !std::isnan(checkpoint.loss);
  worse_in_a_row_ = checkpoint.best ? 0 : worse_in_a_row_ + 1;
  if (checkpoint.best) best_ = checkpoint;
}

absl::Status BestCheckpoint::Copy(uint64_t next_iteration) const {
  PENSTOCK_RETURN_IF_ERROR(RemoveFolder(copy()));
  PENSTOCK_RETURN_IF_ERROR(LinkFiles(CheckpointPath(absl::StrCat(run_dir_, "/checkpoints"), next_iteration),
                                     CheckpointPath(absl::StrCat(copy(), "/checkpoints"), next_iteration)));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModel(run_dir_));
  PENSTOCK_RETURN_IF_ERROR(WriteModel(copy(), model));
  PENSTOCK_RETURN_IF_ERROR(KeepFilesOf(run_dir_, copy()));
  return model.has_adapters() ? KeepBase(BaseFolder(run_dir_), copy()) : absl::OkStatus();
}

absl::Status BestCheckpoint::KeepCopy(const ValidatedCheckpoint& checkpoint) const {
  nlohmann::ordered_json record = {{"next_iteration", checkpoint.next_iteration},
                                   {"loss", checkpoint.loss},
                                   {"predicted_tokens", checkpoint.tokens}};
  for (const TaskLoss& task : checkpoint.tasks) {
    record["datasets"].push_back(
        {{"name", task.task}, {"loss", task.loss}, {"predicted_tokens", task.tokens}});
  }
  PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(ValidationRecordFile(copy()), record.dump() + "\n"));
  PENSTOCK_RETURN_IF_ERROR(RemoveFolder(folder()));
  std::error_code error;
  fs::rename(copy(), folder(), error);
  return error ? FolderError("keeping", folder(), error) : absl::OkStatus();
}

}  // namespace penstock::cli
