#include "planner/cli/up/run_curves.h"

#include "absl/strings/str_cat.h"
#include "common/names/part_name.h"
#include "common/status/status_macros.h"
#include "planner/cli/dropped_rows.h"
#include "planner/cli/expert_layers.h"
#include "planner/cli/units.h"
#include "planner/cli/up/run_summary.h"

namespace penstock::cli {
namespace {

void AddLoadScalars(const char* name, const std::optional<LayerLoads>& loads, std::vector<Scalar>& scalars) {
  if (!loads.has_value()) return;
  scalars.push_back({absl::StrCat("experts/", name, "_mean"), loads->mean});
  scalars.push_back({absl::StrCat("experts/", name, "_worst_layer"), loads->layers.front().load});
}

std::vector<Scalar> ScalarsOf(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks) {
  std::vector<Scalar> scalars;
  if (!LearntNothing(iteration)) {
    scalars = {{"train/loss", iteration.loss()}, {"train/gradient_norm", iteration.gradient_norm()}};
    for (const v1::PartNorm& part : iteration.part_norms())
      scalars.push_back({absl::StrCat("gradient_norm/", PartName(part.part())), part.norm()});
  }
  if (iteration.router_balance_loss() > 0)
    scalars.push_back({"train/router_balance_loss", iteration.router_balance_loss()});
  if (iteration.router_z_loss() > 0) scalars.push_back({"train/router_z_loss", iteration.router_z_loss()});
  if (iteration.routed_expert_rows() > 0)
    scalars.push_back({"train/dropped_expert_rows", DroppedShare(iteration)});
  AddLoadScalars("fullest_rank", RankLoads(iteration), scalars);
  AddLoadScalars("fullest_expert", ExpertLoads(iteration), scalars);
  scalars.push_back({"train/learning_rate", iteration.learning_rate()});
  scalars.push_back({"speed/tokens_per_second", TokensPerSecond(iteration)});
  scalars.push_back({"speed/iteration_ms", Milliseconds(iteration.measured_ns())});
  scalars.push_back({"speed/bubble", iteration.bubble()});
  for (const TaskCounts& task : tasks) {
    scalars.push_back({absl::StrCat("task_samples/", task.task), static_cast<double>(task.samples)});
    scalars.push_back({absl::StrCat("task_tokens/", task.task), static_cast<double>(task.tokens)});
    if (task.loss.has_value()) scalars.push_back({absl::StrCat("task_loss/", task.task), *task.loss});
  }
  return scalars;
}

std::vector<Scalar> ScalarsOf(const ValidatedCheckpoint& checkpoint) {
  std::vector<Scalar> scalars = {{"validation/loss", checkpoint.loss}};
  for (const TaskLoss& task : checkpoint.tasks)
    scalars.push_back({absl::StrCat("validation_task/", task.task), task.loss});
  return scalars;
}

}  // namespace

absl::StatusOr<RunCurves> RunCurves::Open(const std::string& run_dir, uint64_t first_iteration, bool trains,
                                          TensorboardEvents::Clock clock) {
  PENSTOCK_ASSIGN_OR_RETURN(MetricsFile metrics,
                            MetricsFile::Open(absl::StrCat(run_dir, "/metrics.jsonl"), first_iteration));
  std::optional<TensorboardEvents> events;
  if (trains) {
    PENSTOCK_ASSIGN_OR_RETURN(events, TensorboardEvents::Open(absl::StrCat(run_dir, "/tensorboard"),
                                                              first_iteration, std::move(clock)));
  }
  return RunCurves(std::move(metrics), std::move(events), first_iteration);
}

absl::Status RunCurves::AddEvents(const v1::IterationSummary& iteration,
                                  const std::vector<TaskCounts>& tasks) {
  if (!events_.has_value()) return absl::OkStatus();
  if (iteration.iteration() < next_iteration_)
    PENSTOCK_RETURN_IF_ERROR(events_->GoBackTo(iteration.iteration()));
  next_iteration_ = iteration.iteration() + 1;
  return events_->Add(iteration.iteration(), ScalarsOf(iteration, tasks));
}

absl::Status RunCurves::Add(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks) {
  absl::Status status = metrics_.Add(iteration, tasks);
  status.Update(AddEvents(iteration, tasks));
  return status;
}

absl::Status RunCurves::AddValidation(const ValidatedCheckpoint& checkpoint) {
  absl::Status status = metrics_.AddValidation(checkpoint);
  if (events_.has_value()) status.Update(events_->Add(checkpoint.next_iteration - 1, ScalarsOf(checkpoint)));
  return status;
}

}  // namespace penstock::cli
