#include "planner/cli/up/measuring_workers.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/process/child_process.h"
#include "common/process/log_tail.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

// Starting LibTorch and finishing the last measurement come on top of the time for measuring.
constexpr absl::Duration kGrace = absl::Seconds(60);
// On a busy machine it takes so many times as long, with a tensor degree.
constexpr int kMostWait = 4;
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
constexpr size_t kShownLinesOfWorker = 4;

absl::Status WriteModelFile(const v1::ModelSpec& model, const std::string& path) {
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(model, &json);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return WriteFileAtomically(path, json);
}

absl::StatusOr<ExitStatus> WaitForEnd(ChildProcess& child, const MeasuringWorkers& workers) {
  const absl::Time deadline = absl::Now() + kMostWait * absl::Seconds(workers.seconds) + kGrace;
  while (absl::Now() < deadline) {
    if (const std::optional<ExitStatus> ended = child.Poll(); ended.has_value()) return *ended;
    if (workers.stopped(kPollInterval)) return absl::CancelledError("stopped by a signal");
  }
  return absl::UnavailableError("the worker took too long");
}

// What a copy leaves besides the output of the first.
std::string OutputOf(const std::string& output, uint32_t copy) {
  return copy == 0 ? output : absl::StrCat(output, ".load-", copy);
}

std::vector<std::string> Command(const MeasuringWorkers& workers, uint32_t copy, const std::string& model,
                                 const std::string& output) {
  std::vector<std::string> command = {workers.worker_binary,
                                      workers.command,
                                      absl::StrCat("--model-json=", model),
                                      absl::StrCat("--out=", OutputOf(output, copy)),
                                      absl::StrCat("--seconds=", workers.seconds),
                                      absl::StrCat("--threads=", workers.threads),
                                      absl::StrCat("--side-by-side=", workers.copies)};
  if (workers.copies * workers.threads > std::max(1U, std::thread::hardware_concurrency()))
    command.emplace_back("--shared-cores");
  if (copy == 0 && !workers.so_far.empty()) command.push_back(absl::StrCat("--so-far=", workers.so_far));
  if (!workers.gpus.empty()) command.push_back(absl::StrCat("--device=cuda:", workers.gpus[copy]));
  command.insert(command.end(), workers.arguments.begin(), workers.arguments.end());
  if (copy > 0) command.insert(command.end(), workers.load_arguments.begin(), workers.load_arguments.end());
  return command;
}

// Until the first has ended.
absl::StatusOr<ExitStatus> RunUntilFirstEnds(const MeasuringWorkers& workers, const std::string& model,
                                             const std::string& output, const std::string& log) {
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (uint32_t copy = 0; copy < workers.copies; ++copy) {
    PENSTOCK_ASSIGN_OR_RETURN(
        std::unique_ptr<ChildProcess> child,
        ChildProcess::Start({.arguments = Command(workers, copy, model, output),
                             .environment = {{"OMP_NUM_THREADS", absl::StrCat(workers.threads)}},
                             .log_path = log}));
    children.push_back(std::move(child));
  }
  return WaitForEnd(*children.front(), workers);
}

}  // namespace

absl::Status RunMeasuringWorkers(const MeasuringWorkers& workers, const std::string& output) {
  const std::string model = absl::StrCat(output, ".model.json"), log = absl::StrCat(output, ".log");
  PENSTOCK_RETURN_IF_ERROR(WriteModelFile(workers.model, model));
  const absl::StatusOr<ExitStatus> ended = RunUntilFirstEnds(workers, model, output, log);
  std::error_code ignored;
  std::filesystem::remove(model, ignored);
  for (uint32_t copy = 1; copy < workers.copies; ++copy)
    std::filesystem::remove(OutputOf(output, copy), ignored);
  PENSTOCK_RETURN_IF_ERROR(ended.status());
  if (!ended->ok()) {
    return absl::UnavailableError(absl::StrCat("the worker ", ended->ToString(), "; the end of ", log, ":\n",
                                               LogTail(log, kShownLinesOfWorker)));
  }
  std::filesystem::remove(log, ignored);
  return absl::OkStatus();
}

}  // namespace penstock::cli
