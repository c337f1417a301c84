#include "planner/cli/up/validation.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/files.h"
#include "common/process/log_tail.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/base_folder.h"
#include "planner/cli/model/model_folder.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownLogLines = 10;

std::string ResultFile(const std::string& run_dir) { return absl::StrCat(run_dir, "/logs/validation.json"); }
std::string LogFile(const std::string& run_dir) { return absl::StrCat(run_dir, "/logs/validation.log"); }

// What an earlier evaluation has left would be taken for this one's.
absl::Status RemoveResult(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("removing '", path, "': ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Validation>> Validation::Open(const ValidationOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(BestCheckpoint best,
                            BestCheckpoint::Open(options.run_dir, options.first_iteration));
  return std::unique_ptr<Validation>(new Validation(options, std::move(best)));
}

uint64_t Validation::Newest() const {
  const std::vector<uint64_t> complete = CompleteCheckpoints(absl::StrCat(options_.run_dir, "/checkpoints"));
  return complete.empty() ? 0 : complete.front();
}

bool Validation::pending() const { return evaluation_ != nullptr || Newest() > looked_at_; }

absl::Status Validation::Begin(uint64_t next_iteration) {
  looked_at_ = next_iteration;
  PENSTOCK_RETURN_IF_ERROR(best_.Copy(next_iteration));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModel(best_.copy()));
  const std::string checkpoint = CheckpointPath(absl::StrCat(best_.copy(), "/checkpoints"), next_iteration);
  PENSTOCK_RETURN_IF_ERROR(RemoveResult(ResultFile(options_.run_dir)));
  std::vector<std::string> arguments = {options_.worker,
                                        "evaluate",
                                        "--json",
                                        absl::StrCat("--model-json=", ModelFile(best_.copy())),
                                        absl::StrCat("--checkpoint=", checkpoint),
                                        absl::StrCat("--dataset=", ToText(options_.datasets)),
                                        absl::StrCat("--samples=", options_.samples),
                                        absl::StrCat("--max-length=", options_.max_length),
                                        absl::StrCat("--device=", options_.device)};
  if (model.has_adapters()) arguments.push_back(absl::StrCat("--base=", BaseFolder(best_.copy())));
  PENSTOCK_ASSIGN_OR_RETURN(evaluation_, ChildProcess::Start({.arguments = std::move(arguments),
                                                              .log_path = LogFile(options_.run_dir),
                                                              .output_path = ResultFile(options_.run_dir)}));
  return absl::OkStatus();
}

absl::StatusOr<ValidatedCheckpoint> Validation::End(const ExitStatus& ended) {
  evaluation_.reset();
  if (!ended.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "the evaluation of the checkpoint of iteration ", looked_at_, " ", ended.ToString(), "; the end of ",
        LogFile(options_.run_dir), ":\n", LogTail(LogFile(options_.run_dir), kShownLogLines)));
  }
  PENSTOCK_ASSIGN_OR_RETURN(ValidatedCheckpoint checkpoint,
                            ReadValidationRecord(ResultFile(options_.run_dir)));
  checkpoint.next_iteration = looked_at_;
  best_.Judge(checkpoint);
  if (checkpoint.best) PENSTOCK_RETURN_IF_ERROR(best_.KeepCopy(checkpoint));
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
