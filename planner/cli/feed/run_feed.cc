#include "planner/cli/feed/run_feed.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/binary_folder.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "penstock/client/planner_client.h"
#include "planner/cli/feed/job_file.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/up/chosen_share_weights.h"
#include "planner/cli/up/job_setup.h"
#include "planner/cli/up/machine.h"
#include "planner/cli/up/proposed_strategies.h"
#include "planner/cli/up/rank_validation.h"
#include "planner/cli/up/run_console.h"
#include "planner/cli/up/run_data.h"
#include "planner/cli/up/stop_signal.h"
#include "planner/cli/up/training_run.h"
#include "planner/cli/up/wait_news.h"

namespace penstock::cli {
namespace {

// Before it has answered once, a planner may be one that is not there: a wrong address.
constexpr absl::Duration kFirstContact = absl::Seconds(70);

// A run from flags to the last batch.
class Feed {
 public:
  // All must outlive this object.
  Feed(FeedOptions options, PlannerClient& client, const RunConsole& console, StopSignal& stop)
      : options_(std::move(options)), flags_(options_.job), client_(client), console_(console), stop_(stop) {}

  absl::Status Run();

 private:
  absl::StatusOr<v1::JobSpec> MakeTheJob(const RunData& data);
  absl::StatusOr<v1::JobSpec> JobOfFile(const RunData& data);
  // Where a file names none; of validation those that it names must be these.
  absl::Status AddTasks(const RunData& data, v1::JobSpec* job) const;
  absl::StatusOr<v1::JobSpec> JobOfFlags(const RunData& data);
  // What the planner has of the job; nothing where it has none of this id.
  absl::StatusOr<std::optional<v1::JobSpec>> RegisteredJob();
  absl::Status Register(const v1::JobSpec& job);
  absl::Status SubmitAll(TrainingRun& run);

  FeedOptions options_;
  UpOptions& flags_;
  PlannerClient& client_;
  const RunConsole& console_;
  StopSignal& stop_;
};

absl::Status Feed::AddTasks(const RunData& data, v1::JobSpec* job) const {
  const std::vector<std::string> tasks = data.JobTasks(flags_);
  if (job->tasks().empty()) {
    for (const std::string& task : tasks) job->add_tasks(task);
  }
  if (!ValidatesOnRanks(flags_)) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckRanksCanValidate(*job));
  PENSTOCK_RETURN_IF_ERROR(RunData::CheckValidation(flags_.validation, job->model().vocab()));
  if (std::ranges::equal(job->tasks(), tasks)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--validation: tasks of --job-file are ", absl::StrJoin(job->tasks(), ", "), ", those of ",
                   "these flags ", tasks.empty() ? "none" : absl::StrJoin(tasks, ", ")));
}

absl::StatusOr<v1::JobSpec> Feed::JobOfFile(const RunData& data) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, ReadJobFile(options_.job_file));
  flags_.seed = job.training().seed();
  LimitLengthsTo(job.model(), &flags_);
  PENSTOCK_ASSIGN_OR_RETURN(const CutSummary cut, data.SummarizeCut(flags_, job.model().architecture()));
  console_.Say(DescribeCut(cut));
  PENSTOCK_RETURN_IF_ERROR(AddTasks(data, &job));
  return job;
}

absl::StatusOr<std::optional<v1::JobSpec>> Feed::RegisteredJob() {
  v1::GetJobRequest request;
  request.set_job_id(flags_.job_id);
  const absl::StatusOr<v1::GetJobResponse> job =
      client_.GetJob(request, std::min(kFirstContact, absl::Seconds(options_.planner_timeout_s)));
  if (absl::IsNotFound(job.status())) return std::optional<v1::JobSpec>();
  if (!job.ok()) return AnnotateError(job.status(), "--planner");
  return job->job();
}

absl::StatusOr<v1::JobSpec> Feed::JobOfFlags(const RunData& data) {
  PENSTOCK_RETURN_IF_ERROR(CheckDevice(flags_));
  const RunSetupTools tools = {.bin_dir = BinaryFolder().value_or("."),
                               .say = [this](const std::string& text) { console_.Say(text); },
                               .stopped = [this](absl::Duration most) { return stop_.WaitFor(most); }};
  PENSTOCK_ASSIGN_OR_RETURN(const GivenParts given, ReadGivenParts(flags_, tools));
  if (given.model.has_value()) LimitLengthsTo(*given.model, &flags_);
  PENSTOCK_RETURN_IF_ERROR(CountIterations(data, given, &flags_));
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, MakeJob(flags_, data, given, tools));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<v1::JobSpec> registered, RegisteredJob());
  if (registered.has_value() && !given.profile.has_value()) {
    // It was measured when the job was registered; another measurement would make another job.
    *job.mutable_profile() = registered->profile();
    AddMemoryLimitOfGpus(flags_, &job);
    // As they were proposed then.
    if (ProposesStrategies(flags_)) {
      *job.mutable_strategies() = registered->strategies();
      *job.mutable_mesh() = registered->mesh();
    }
    if (flags_.planning.share_weights.choose)
      *job.mutable_planning()->mutable_share_weights() = registered->planning().share_weights();
    return job;
  }
  PENSTOCK_RETURN_IF_ERROR(AddProfile(flags_, given.profile, tools, &job));
  PENSTOCK_RETURN_IF_ERROR(AddProposedStrategies(flags_, data, tools, &job));
  PENSTOCK_RETURN_IF_ERROR(AddChosenShareWeights(flags_, data, tools, &job));
  return job;
}

absl::StatusOr<v1::JobSpec> Feed::MakeTheJob(const RunData& data) {
  return options_.job_file.empty() ? JobOfFlags(data) : JobOfFile(data);
}

// The same specification again is fine.
absl::Status Feed::Register(const v1::JobSpec& job) {
  v1::RegisterJobRequest request;
  *request.mutable_job() = job;
  const absl::Duration deadline = std::max(
      PlannerClient::kPlanDeadline, std::min(kFirstContact, absl::Seconds(options_.planner_timeout_s)));
  return AnnotateError(client_.RegisterJob(request, deadline).status(),
                       absl::StrCat("planner ", flags_.planner.address));
}

absl::Status Feed::SubmitAll(TrainingRun& run) {
  bool began = false;
  WaitNews quota;
  WaitNews trouble(WaitNews::kTrouble);
  while (!run.fed() && !run.finished() && !run.drains()) {
    PENSTOCK_RETURN_IF_ERROR(run.Step([](const v1::IterationSummary&) {}));
    if (const std::string news = quota.Take(run.held_by_quota(), absl::Now()); !news.empty())
      console_.Say(absl::StrCat("waiting for a quota: ", news));
    if (const std::string news = trouble.Take(run.trouble(), absl::Now()); !news.empty())
      console_.Say(absl::StrCat("waiting for the planner (--planner-timeout): ", news));
    if (!began && run.silence() == absl::ZeroDuration()) {
      console_.Say(absl::StrCat("job ", run.status().job_id(), ": its batches end before iteration ",
                                run.status().next_iteration()));
      began = true;
    }
    if (!run.fed() && !run.finished() && !run.drains() && stop_.WaitFor(run.Pause())) {
      return absl::CancelledError(absl::StrCat("stopped by a signal before iteration ", run.next_batch(),
                                               "; the same command goes on there"));
    }
  }
  if (run.fed() || !run.drains()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it drains: the planner takes no batch of iteration ", run.next_batch(), " and later"));
}

absl::Status Feed::Run() {
  PENSTOCK_RETURN_IF_ERROR(CheckData(flags_));
  PENSTOCK_ASSIGN_OR_RETURN(const RunData data, RunData::Open(flags_));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec job, MakeTheJob(data));
  PENSTOCK_RETURN_IF_ERROR(Register(job));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<BatchSource> batches,
      data.MakeFedBatches(flags_, job.model().architecture(), job.training().iterations()));
  TrainingRun run(client_, job, *batches, absl::Seconds(options_.planner_timeout_s),
                  TrainingRun::Epochs::kMany);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(SubmitAll(run), absl::StrCat("job ", job.job_id())));
  console_.Say(absl::StrCat("job ", job.job_id(), ": the planner has the batches of all ",
                            job.training().iterations(), " iterations"));
  return absl::OkStatus();
}

absl::Status ConnectAndFeed(FeedOptions options) {
  StopSignal stop;
  const RunConsole console(/*json_on_stdout=*/false);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, options.job.planner.Client());
  return Feed(std::move(options), *client, console, stop).Run();
}

}  // namespace

absl::Status RunFeed(FeedOptions options) { return NameFlags(ConnectAndFeed(std::move(options))); }

}  // namespace penstock::cli
