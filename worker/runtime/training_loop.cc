#include "worker/runtime/training_loop.h"

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

IterationReport MakeReport(uint64_t iteration, absl::Duration waited, IterationResult result) {
  return {.iteration = iteration,
          .instructions = std::move(result.instructions),
          .duration_ns = result.duration_ns,
          .waited_for_program_ns = absl::ToInt64Nanoseconds(waited),
          .started_unix_ns = result.started_unix_ns,
          .lone_pass_ns = result.lone_pass_ns,
          .lone_pass_core_ns = result.lone_pass_core_ns,
          .loss = result.loss,
          .router_balance_loss = result.router_balance_loss,
          .router_z_loss = result.router_z_loss,
          .expert_rows = std::move(result.expert_rows),
          .fullest_expert_rows = std::move(result.fullest_expert_rows),
          .routed_expert_rows = result.routed_expert_rows,
          .dropped_expert_rows = result.dropped_expert_rows,
          .gradient_norm = result.gradient_norm,
          .parts = std::move(result.parts),
          .learning_rate = result.learning_rate,
          .peak_memory_bytes = result.peak_memory_bytes,
          .tasks = std::move(result.tasks),
          .validation = std::move(result.validation)};
}

}  // namespace

absl::Status RunTrainingLoop(ControlPlane& control, const TrainingLoopParts& parts) {
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const NextProgram next, control.Next());
    if (next.finished) break;
    const uint64_t iteration = next.program->iteration;
    parts.prepare(next.program);
    if (const std::shared_ptr<const Program> upcoming = control.Upcoming()) parts.prepare(upcoming);
    PENSTOCK_ASSIGN_OR_RETURN(IterationResult result, parts.run(*next.program));
    parts.ran(*next.program, result, next.waited);
    const Votes votes = result.votes;
    // What training ends with is on the disk before its iteration is reported. Any other iteration is done
    // whatever becomes of a checkpoint, and what goes on from its end needs the report: a disk that is waited
    // for does not hold it up.
    const bool ends = parts.checkpoints->TrainingEndsWith(iteration, votes);
    const auto report = [&] { return control.Report(MakeReport(iteration, next.waited, std::move(result))); };
    if (!ends) PENSTOCK_RETURN_IF_ERROR(report());
    PENSTOCK_RETURN_IF_ERROR(parts.checkpoints->AfterIteration(iteration, votes));
    if (ends) PENSTOCK_RETURN_IF_ERROR(report());
    parts.finished(iteration);
    if (!votes.stop) continue;
    PENSTOCK_RETURN_IF_ERROR(parts.checkpoints->BeforeStop());
    PENSTOCK_RETURN_IF_ERROR(parts.stop_reason());
  }
  PENSTOCK_RETURN_IF_ERROR(parts.checkpoints->AtEnd());
  return control.FlushReports(parts.report_timeout);
}

}  // namespace penstock::worker
