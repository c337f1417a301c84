#include "planner/service/engine/job_reports.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/service/state/summary.h"

namespace penstock {
namespace {

// Completed iterations whose plans and reports stay in memory: nobody runs them again but after a failure,
// when their plans are made anew, and who looks at measurements looks at the newest.
constexpr uint64_t kCompletedInMemory = 64;

uint64_t FirstInMemory(uint64_t completed) { return completed - std::min(completed, kCompletedInMemory); }

using MeasuredInstructions = google::protobuf::RepeatedPtrField<v1::MeasuredInstruction>;
using TaskLosses = google::protobuf::RepeatedPtrField<v1::TaskLoss>;

// Each at most once: reports are held in memory, and summed up.
// `field`: of the report; "" of the training's.
absl::Status CheckInstructions(absl::string_view field, const MeasuredInstructions& measured, uint32_t rank,
                               size_t instructions) {
  std::vector<bool> seen(instructions);
  for (int i = 0; i < measured.size(); ++i) {
    const uint32_t id = measured[i].id();
    if (id >= seen.size()) {
      return absl::InvalidArgumentError(absl::StrCat(field, "instructions[", i, "].id is ", id,
                                                     ", but the program of rank ", rank, " has ",
                                                     instructions, " instructions"));
    }
    if (seen[id]) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "instructions[", i, "].id is ", id, ", which the report has already"));
    }
    seen[id] = true;
  }
  return absl::OkStatus();
}

// They ascend (request_validation.cc).
absl::Status CheckTasks(absl::string_view field, const TaskLosses& losses, int tasks) {
  for (int i = 0; i < losses.size(); ++i) {
    const uint32_t task = losses[i].task();
    if (static_cast<int64_t>(task) < tasks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, "tasks[", i, "].task is ", task, ", but the job has ", tasks, " tasks"));
  }
  return absl::OkStatus();
}

// A loss that lacks a rank's part would be taken for one.
absl::Status CheckValidation(const v1::ReportIterationRequest& report, const PackedPlan& plan, int tasks) {
  if (report.has_validation() != (plan.validation() != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "validation is ", report.has_validation() ? "set" : "missing", ", but the plan of iteration ",
        report.iteration(), " has ", report.has_validation() ? "none" : "one"));
  }
  if (!report.has_validation()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckTasks("validation.", report.validation().tasks(), tasks));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Op> ops,
                            plan.validation()->Ops(static_cast<int>(report.rank())));
  return CheckInstructions("validation.", report.validation().instructions(), report.rank(), ops.size());
}

}  // namespace

// A job that no worker serves may be acknowledged by its reader, with incarnation 0 and epoch 0.
absl::Status JobReports::CheckReporterLocked(const v1::ReportIterationRequest& report) const {
  PENSTOCK_RETURN_IF_ERROR(record_.CheckLiveLocked());
  if (report.rank() >= record_.state().ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", report.rank(), ", but job '", record_.id(),
                                                   "' has ", record_.state().ranks(), " ranks"));
  }
  if (report.incarnation() != 0 || report.epoch() != 0 || !record_.state().membership().empty()) {
    return record_.state().membership().Check({report.rank(), report.incarnation(), report.epoch()});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Op>> JobReports::ReportedOps(const v1::ReportIterationRequest& report) {
  PackedPlanPtr plan;
  {
    JobLock lock(record_.mutex());
    PENSTOCK_RETURN_IF_ERROR(CheckReporterLocked(report));
    if (record_.state().progress().IsReported(report.rank(), report.iteration()))
      return std::vector<v1::Op>();
    PENSTOCK_RETURN_IF_ERROR(CheckSentLocked(report));
    plan = record_.values().plan(report.iteration());
    if (plan == nullptr) planning_.WantLocked(report.iteration());
  }
  if (plan != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(CheckValidation(report, *plan, record_.spec().tasks_size()));
    return plan->Ops(static_cast<int>(report.rank()));
  }
  planning_.PlanMore();
  return absl::UnavailableError(absl::StrCat("the plan of iteration ", report.iteration(),
                                             " is being made again; try again in a moment"));
}

absl::Status JobReports::CheckSentLocked(const v1::ReportIterationRequest& report) const {
  const uint64_t iteration = report.iteration();
  const bool sent = report.incarnation() == 0 || readers_.WasSentLocked(report.rank(), iteration);
  if (!sent || !record_.state().IsPlanned(iteration)) {
    return absl::FailedPreconditionError(
        absl::StrCat("iteration ", iteration, " was not sent to rank ", report.rank()));
  }
  return absl::OkStatus();
}

absl::Status JobReports::KeepReportLocked(const v1::ReportIterationRequest& report,
                                          const std::vector<v1::Op>& ops) {
  PENSTOCK_RETURN_IF_ERROR(CheckSentLocked(report));
  PENSTOCK_RETURN_IF_ERROR(CheckInstructions("", report.instructions(), report.rank(), ops.size()));
  PENSTOCK_RETURN_IF_ERROR(CheckTasks("", report.tasks(), record_.spec().tasks_size()));
  record_.values().PutReport(report);
  store::v1::Event event;
  *event.mutable_iteration_reported() = FiguresOf(ops, report);
  record_.AppendLocked(std::move(event), {}, nullptr, Urgency::kSoon);
  return absl::OkStatus();
}

JobReports::Completed JobReports::CompleteLocked(uint64_t before) {
  Completed completed;
  const JobState& state = record_.state();
  for (auto it = state.summaries().rbegin(); it != state.summaries().rend() && it->iteration() >= before;
       ++it) {
    completed.summaries.push_back(*it);
    traces_.NoteEndLocked(it->iteration(), completed.ended);
  }
  std::reverse(completed.summaries.begin(), completed.summaries.end());
  const uint64_t now = state.progress().completed();
  // Each once, as it gets old: a plan that was made anew, because somebody asked, stays while there is room.
  record_.values().DropRange(FirstInMemory(before), FirstInMemory(now));
  record_.values().Evict(now, record_.services().memory->OfOneJob());
  return completed;
}

absl::Status JobReports::Take(const v1::ReportIterationRequest& report) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Op> ops, ReportedOps(report));
  Completed completed;
  absl::Status status;
  {
    JobLock lock(record_.mutex());
    PENSTOCK_RETURN_IF_ERROR(CheckReporterLocked(report));
    if (record_.state().progress().IsReported(report.rank(), report.iteration())) return absl::OkStatus();
    const uint64_t before = record_.state().progress().completed();
    status = KeepReportLocked(report, ops);
    if (status.ok() && record_.state().progress().completed() == before) return status;
    // Reports of the other ranks are written with the last one.
    record_.services().journal->Hurry();
    completed = CompleteLocked(before);
  }
  for (const v1::IterationSummary& summary : completed.summaries)
    record_.services().observer->OnIterationCompleted(record_.id(), summary);
  traces_.TellOfEnds(completed.ended, completed.summaries);
  if (status.ok()) readers_.WakeAll();
  costs_.Recalibrate();
  diagnoses_.LookIfDue();
  planning_.PlanMore();
  return status;
}

}  // namespace penstock
