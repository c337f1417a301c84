#include "planner/cli/up/validation.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/files.h"
#include "common/files/link_files.h"
#include "common/process/log_tail.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/base_folder.h"
#include "planner/cli/model/kept_files.h"
#include "planner/cli/model/model_folder.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownLogLines = 10;

absl::Status FolderError(absl::string_view what, const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(what, " '", path, "': ", error.message()));
}

absl::Status RemoveFolder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? FolderError("removing", path, error) : absl::OkStatus();
}

std::string ResultFile(const std::string& run_dir) { return absl::StrCat(run_dir, "/logs/validation.json"); }
std::string LogFile(const std::string& run_dir) { return absl::StrCat(run_dir, "/logs/validation.log"); }
std::string RecordFile(const std::string& folder) { return absl::StrCat(folder, "/validation.json"); }

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

absl::StatusOr<ValidatedCheckpoint> ReadRecord(const std::string& file) {
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

}  // namespace

std::string Validation::validating() const { return absl::StrCat(options_.run_dir, "/validating"); }
std::string Validation::best_folder() const { return absl::StrCat(options_.run_dir, "/best"); }

absl::StatusOr<std::unique_ptr<Validation>> Validation::Open(const ValidationOptions& options) {
  std::unique_ptr<Validation> validation(new Validation(options));
  if (options.first_iteration == 0) {
    PENSTOCK_RETURN_IF_ERROR(RemoveFolder(validation->best_folder()));
    return validation;
  }
  absl::StatusOr<ValidatedCheckpoint> best = ReadRecord(RecordFile(validation->best_folder()));
  if (absl::IsNotFound(best.status())) return validation;
  PENSTOCK_ASSIGN_OR_RETURN(validation->best_, std::move(best));
  return validation;
}

uint64_t Validation::Newest() const {
  const std::vector<uint64_t> complete = CompleteCheckpoints(absl::StrCat(options_.run_dir, "/checkpoints"));
  return complete.empty() ? 0 : complete.front();
}

bool Validation::pending() const { return evaluation_ != nullptr || Newest() > looked_at_; }

absl::Status Validation::Begin(uint64_t next_iteration) {
  looked_at_ = next_iteration;
  PENSTOCK_RETURN_IF_ERROR(RemoveFolder(validating()));
  const std::string copy = CheckpointPath(absl::StrCat(validating(), "/checkpoints"), next_iteration);
  PENSTOCK_RETURN_IF_ERROR(
      LinkFiles(CheckpointPath(absl::StrCat(options_.run_dir, "/checkpoints"), next_iteration), copy));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModel(options_.run_dir));
  PENSTOCK_RETURN_IF_ERROR(WriteModel(validating(), model));
  PENSTOCK_RETURN_IF_ERROR(KeepFilesOf(options_.run_dir, validating()));
  PENSTOCK_RETURN_IF_ERROR(RemoveFolder(ResultFile(options_.run_dir)));
  std::vector<std::string> arguments = {options_.worker,
                                        "evaluate",
                                        "--json",
                                        absl::StrCat("--model-json=", ModelFile(validating())),
                                        absl::StrCat("--checkpoint=", copy),
                                        absl::StrCat("--dataset=", ToText(options_.datasets)),
                                        absl::StrCat("--samples=", options_.samples),
                                        absl::StrCat("--max-length=", options_.max_length),
                                        absl::StrCat("--device=", options_.device)};
  if (model.has_adapters()) {
    PENSTOCK_RETURN_IF_ERROR(KeepBase(BaseFolder(options_.run_dir), validating()));
    arguments.push_back(absl::StrCat("--base=", BaseFolder(validating())));
  }
  PENSTOCK_ASSIGN_OR_RETURN(evaluation_, ChildProcess::Start({.arguments = std::move(arguments),
                                                              .log_path = LogFile(options_.run_dir),
                                                              .output_path = ResultFile(options_.run_dir)}));
  return absl::OkStatus();
}

absl::Status Validation::KeepBest(const ValidatedCheckpoint& checkpoint) {
  nlohmann::ordered_json record = {{"next_iteration", checkpoint.next_iteration},
                                   {"loss", checkpoint.loss},
                                   {"predicted_tokens", checkpoint.tokens}};
  for (const TaskLoss& task : checkpoint.tasks) {
    record["datasets"].push_back(
        {{"name", task.task}, {"loss", task.loss}, {"predicted_tokens", task.tokens}});
  }
  PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(RecordFile(validating()), record.dump() + "\n"));
  PENSTOCK_RETURN_IF_ERROR(RemoveFolder(best_folder()));
  std::error_code error;
  fs::rename(validating(), best_folder(), error);
  return error ? FolderError("keeping", best_folder(), error) : absl::OkStatus();
}

absl::StatusOr<ValidatedCheckpoint> Validation::End(const ExitStatus& ended) {
  evaluation_.reset();
  if (!ended.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "the evaluation of the checkpoint of iteration ", looked_at_, " ", ended.ToString(), "; the end of ",
        LogFile(options_.run_dir), ":\n", LogTail(LogFile(options_.run_dir), kShownLogLines)));
  }
  PENSTOCK_ASSIGN_OR_RETURN(ValidatedCheckpoint checkpoint, ReadRecord(ResultFile(options_.run_dir)));
  checkpoint.next_iteration = looked_at_;
  checkpoint.best = !best_.has_value() || checkpoint.loss < best_->loss;
  worse_in_a_row_ = checkpoint.best ? 0 : worse_in_a_row_ + 1;
  if (!checkpoint.best) return checkpoint;
  best_ = checkpoint;
  PENSTOCK_RETURN_IF_ERROR(KeepBest(checkpoint));
  return checkpoint;
}

absl::StatusOr<std::optional<ValidatedCheckpoint>> Validation::Step() {
  if (evaluation_ != nullptr) {
    const std::optional<ExitStatus> ended = evaluation_->Poll();
    if (!ended.has_value()) return std::nullopt;
    PENSTOCK_ASSIGN_OR_RETURN(const ValidatedCheckpoint checkpoint, End(*ended));
    return checkpoint;
  }
  if (const uint64_t newest = Newest(); newest > looked_at_) PENSTOCK_RETURN_IF_ERROR(Begin(newest));
  return std::nullopt;
}

}  // namespace penstock::cli
