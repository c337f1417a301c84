#include "planner/cli/diagnose/job_iterations.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

// Each is a message of up to some megabytes.
constexpr uint64_t kMostIterations = 1000;

struct Range {
  uint64_t first = 0;
  // The one behind the last.
  uint64_t end = 0;
};

// `completed`: the iteration behind the last one that all ranks have reported.
absl::StatusOr<Range> RangeOf(const std::string& text, uint64_t completed) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Range range = {.first = 0, .end = completed};
  uint64_t count = 0;
  if (parts.size() == 1 && absl::SimpleAtoi(parts[0], &count) && count > 0) {
    range.first = completed - std::min(completed, count);
  } else if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &range.first) ||
             !absl::SimpleAtoi(parts[1], &range.end) || range.first >= range.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("--iterations ", text, ": use N, the last so many, or A:B"));
  }
  if (range.end - range.first <= kMostIterations) return range;
  return absl::InvalidArgumentError(
      absl::StrCat("--iterations ", text, ": ask for at most ", kMostIterations, " at once"));
}

absl::StatusOr<v1::GetJobResponse> AskForJob(PlannerClient& client, const std::string& job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  // No summaries.
  request.set_from_iteration(std::numeric_limits<uint64_t>::max());
  absl::StatusOr<v1::GetJobResponse> answer = client.GetJob(request);
  if (!answer.ok()) return AnnotateError(answer.status(), absl::StrCat("--job ", job));
  return answer;
}

}  // namespace

void JobIterationFlags::AddTo(CLI::App& command) {
  planner.AddTo(command, kPlannerHelp);
  command.add_option("--job", job, "The job, whose ranks have reported to that planner");
  command
      .add_option(
          "--iterations", iterations,
          "Which iterations: N, the last so many, or A:B, from A on and before B; the planner holds those "
          "of the last three checkpoint intervals")
      ->capture_default_str();
}

absl::StatusOr<JobRecord> RecordIterations(const JobIterationFlags& flags) {
  if (flags.planner.address.empty())
    return absl::InvalidArgumentError("--job needs --planner, host:port of the planner that has it");
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, flags.planner.ImpatientClient());
  PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse job, AskForJob(*client, flags.job));
  const uint64_t completed = job.status().completed_iteration();
  PENSTOCK_ASSIGN_OR_RETURN(const Range range, RangeOf(flags.iterations, completed));
  JobRecord record = {.job = std::move(*job.mutable_job()), .iterations = TraceRecorder()};
  uint64_t held = 0;
  for (uint64_t i = range.first; i < range.end; ++i) {
    v1::GetIterationRequest request;
    request.set_job_id(flags.job);
    request.set_iteration(i);
    absl::StatusOr<v1::GetIterationResponse> iteration = client->GetIteration(request);
    if (absl::IsOutOfRange(iteration.status())) continue;
    if (!iteration.ok()) return AnnotateError(iteration.status(), absl::StrCat("--job ", flags.job));
    if (iteration->reports().empty()) continue;
    record.iterations.Add(*std::move(iteration));
    ++held;
  }
  if (held > 0) return record;
  return absl::NotFoundError(absl::StrCat("--iterations ", flags.iterations, ": of job ", flags.job,
                                          ", with ", completed,
                                          " iterations, the planner holds none of them with reports"));
}

}  // namespace penstock::cli
