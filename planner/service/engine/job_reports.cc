// Job: what its ranks measured.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/job.h"
#include "planner/service/engine/summary.h"

namespace penstock {
namespace {

// Each at most once: reports are held in memory, and summed up.
absl::Status CheckInstructions(const v1::ReportIterationRequest& report, const v1::Program& program) {
  std::vector<bool> seen(program.instructions_size());
  for (int i = 0; i < report.instructions_size(); ++i) {
    const uint32_t id = report.instructions(i).id();
    if (id >= seen.size()) {
      return absl::InvalidArgumentError(absl::StrCat("instructions[", i, "].id is ", id,
                                                     ", but the program of rank ", report.rank(), " has ",
                                                     program.instructions_size(), " instructions"));
    }
    if (seen[id]) {
      return absl::InvalidArgumentError(
          absl::StrCat("instructions[", i, "].id is ", id, ", which the report has already"));
    }
    seen[id] = true;
  }
  return absl::OkStatus();
}

}  // namespace

// A job that no worker serves may be acknowledged by its reader, with incarnation 0 and epoch 0.
absl::Status Job::CheckReporterLocked(const v1::ReportIterationRequest& report) const {
  if (report.rank() >= ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", report.rank(), ", but job '", spec_.job_id(), "' has ", ranks_, " ranks"));
  }
  if (report.incarnation() != 0 || report.epoch() != 0 || !membership_.empty()) {
    return membership_.Check({report.rank(), report.incarnation(), report.epoch()});
  }
  return absl::OkStatus();
}

absl::Status Job::KeepReportLocked(const v1::ReportIterationRequest& report) {
  const uint64_t iteration = report.iteration();
  const bool available =
      report.incarnation() == 0 ? planned_.Contains(iteration) : progress_.WasSent(report.rank(), iteration);
  if (!available) {
    return absl::FailedPreconditionError(
        absl::StrCat("iteration ", iteration, " was not sent to rank ", report.rank()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const PlanPtr plan, services_.store->GetPlan(spec_.job_id(), iteration));
  PENSTOCK_RETURN_IF_ERROR(CheckInstructions(report, plan->programs(report.rank())));
  PENSTOCK_RETURN_IF_ERROR(services_.store->AddReport(report));
  progress_.Report(report.rank(), iteration);
  return absl::OkStatus();
}

absl::Status Job::ReportIteration(const v1::ReportIterationRequest& report) {
  std::vector<v1::IterationSummary> summaries;
  {
    MutexLock lock(&mutex_);
    PENSTOCK_RETURN_IF_ERROR(CheckReporterLocked(report));
    if (progress_.IsReported(report.rank(), report.iteration())) return absl::OkStatus();
    const uint64_t completed = progress_.completed();
    PENSTOCK_RETURN_IF_ERROR(KeepReportLocked(report));
    if (progress_.completed() == completed) return absl::OkStatus();
    summaries = CompleteLocked(completed, progress_.completed());
  }
  for (const v1::IterationSummary& summary : summaries) {
    services_.observer->OnIterationCompleted(spec_.job_id(), summary);
  }
  readers_.WakeAll();
  return absl::OkStatus();
}

std::vector<v1::IterationSummary> Job::CompleteLocked(uint64_t from, uint64_t to) {
  std::vector<v1::IterationSummary> summaries;
  for (uint64_t iteration = from; iteration < to; ++iteration) {
    const auto plan = services_.store->GetPlan(spec_.job_id(), iteration);
    const auto reports = services_.store->GetReports(spec_.job_id(), iteration);
    if (!plan.ok() || !reports.ok()) {
      LogError("an iteration cannot be summed up",
               {{"job", spec_.job_id()},
                {"iteration", iteration},
                {"reason", (plan.ok() ? reports.status() : plan.status()).ToString()}});
      continue;
    }
    v1::IterationSummary& summary = summaries.emplace_back(Summarize(**plan, *reports));
    summary.set_planned_ahead(
        static_cast<uint32_t>(std::max(planned_.next(), iteration + 1) - iteration - 1));
    KeepSummaryLocked(summary);
  }
  TrimLocked();
  FinishIfDoneLocked();
  return summaries;
}

void Job::KeepSummaryLocked(const v1::IterationSummary& summary) {
  summaries_.push_back(summary);
  if (summaries_.size() > kKeptSummaries) summaries_.pop_front();
}

void Job::TrimLocked() {
  const uint64_t completed = progress_.completed();
  if (completed < first_held_ + history_ + 1) return;
  first_held_ = completed - history_;
  if (const absl::Status status = services_.store->Trim(spec_.job_id(), first_held_); !status.ok()) {
    LogWarning("old iterations stay in the store", {{"job", spec_.job_id()}, {"reason", status.ToString()}});
  }
}

}  // namespace penstock
