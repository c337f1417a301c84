#include "planner/service/state/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "planner/core/replay/expected_time.h"

namespace penstock {
namespace {

bool IsCompute(v1::Op op) {
  switch (op) {
    case v1::OP_FORWARD:
    case v1::OP_BACKWARD:
    case v1::OP_BACKWARD_INPUT:
    case v1::OP_BACKWARD_WEIGHT:
    case v1::OP_RECOMPUTE:
    case v1::OP_OPTIMIZER_STEP:
      return true;
    default:
      return false;
  }
}

// Sums are floating point: whatever a rank reports, they do not overflow.
double PredictedComputeNs(const v1::Plan& plan) {
  double sum = 0;
  for (const v1::Program& program : plan.programs()) {
    for (const v1::Instruction& instruction : program.instructions()) {
      if (IsCompute(instruction.op())) sum += static_cast<double>(instruction.expected_duration_ns());
    }
  }
  return sum;
}

// Of the instructions whose op `counts`.
double MeasuredNs(const std::vector<v1::Op>& ops, const v1::ReportIterationRequest& report,
                  bool (*counts)(v1::Op)) {
  double sum = 0;
  for (const v1::MeasuredInstruction& measured : report.instructions()) {
    if (counts(ops[measured.id()])) sum += static_cast<double>(measured.duration_ns());
  }
  return sum;
}

bool IsOptimizerStep(v1::Op op) { return op == v1::OP_OPTIMIZER_STEP; }

double Bubble(double compute_ns, uint32_t ranks, int64_t total_ns) {
  if (total_ns <= 0) return 0;
  return 1.0 - compute_ns / (static_cast<double>(ranks) * static_cast<double>(total_ns));
}

using Reports = std::vector<store::v1::IterationReported>;

// Without what ranks wait in optimizer steps: all but the last one wait there for the norm of all gradients,
// so that of all steps the shortest has least of it. (A rank that has more parameters than others takes
// longer, which is counted as waiting too where another one came last.)
double ComputeNs(const Reports& reports) {
  double shortest_step = 0;
  for (const store::v1::IterationReported& report : reports) {
    const double step = report.optimizer_step_ns();
    if (step > 0 && (shortest_step == 0 || step < shortest_step)) shortest_step = step;
  }
  double sum = 0;
  for (const store::v1::IterationReported& report : reports)
    sum += report.compute_ns() - std::max(0.0, report.optimizer_step_ns() - shortest_step);
  return sum;
}

// `tasks_of`: those of a report; `summary`: what has tasks.
template <typename TasksOf, typename Summary>
void AddTasks(const Reports& reports, TasksOf tasks_of, Summary& summary) {
  std::map<uint32_t, v1::TaskLoss> tasks;
  for (const store::v1::IterationReported& report : reports) {
    for (const v1::TaskLoss& reported : tasks_of(report)) {
      v1::TaskLoss& task = tasks[reported.task()];
      task.set_task(reported.task());
      task.set_loss(task.loss() + reported.loss());
      task.set_weight(task.weight() + reported.weight());
    }
  }
  for (auto& [_, task] : tasks) {
    if (task.weight() > 0) task.set_loss(task.loss() / task.weight());
    *summary.add_tasks() = std::move(task);
  }
}

// Each rank speaks for parameters of its own.
void AddPartNorms(const Reports& reports, v1::IterationSummary& summary) {
  std::map<v1::ModelPart, double> squares;
  for (const store::v1::IterationReported& report : reports)
    for (const v1::PartNorm& part : report.part_norms()) squares[part.part()] += part.norm() * part.norm();
  for (const auto& [part, square] : squares) {
    v1::PartNorm* const norm = summary.add_part_norms();
    norm->set_part(part);
    norm->set_norm(std::sqrt(square));
  }
}

int MicroBatches(const v1::Plan& plan) {
  int micro_batches = 0;
  for (const v1::Replica& replica : plan.replicas()) micro_batches += replica.micro_batches_size();
  return micro_batches;
}

// What is known of a validation before it has run.
v1::ValidationSummary ValidationOf(const v1::Plan& plan) {
  v1::ValidationSummary validation;
  int samples = 0;
  for (const v1::Replica& replica : plan.replicas())
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) samples += micro_batch.samples_size();
  validation.set_samples(static_cast<uint64_t>(samples));
  validation.set_real_tokens(plan.real_tokens());
  validation.set_loss_tokens(plan.loss_tokens());
  validation.set_micro_batches(static_cast<uint32_t>(MicroBatches(plan)));
  validation.set_predicted_ns(plan.predicted().makespan_ns());
  return validation;
}

v1::ValidationSummary SummarizeValidation(const v1::ValidationSummary& planned, const Reports& reports) {
  v1::ValidationSummary summary = planned;
  for (const store::v1::IterationReported& report : reports) {
    summary.set_loss(summary.loss() + report.validation().loss());
    summary.set_measured_ns(std::max(summary.measured_ns(), report.validation().duration_ns()));
  }
  AddTasks(
      reports, [](const store::v1::IterationReported& report) { return report.validation().tasks(); },
      summary);
  return summary;
}

}  // namespace

store::v1::IterationPlanned FiguresOf(const v1::Plan& plan, double waiting_share) {
  store::v1::IterationPlanned figures;
  figures.set_iteration(plan.iteration());
  figures.set_content_hash(plan.content_hash());
  figures.set_real_tokens(plan.real_tokens());
  figures.set_computed_tokens(plan.computed_tokens());
  figures.set_loss_tokens(plan.loss_tokens());
  figures.set_micro_batches(static_cast<uint32_t>(MicroBatches(plan)));
  if (plan.has_validation()) *figures.mutable_validation() = ValidationOf(plan.validation());
  figures.set_makespan_ns(core::ExpectedNs(plan.predicted()));
  figures.set_compute_ns((1 - waiting_share) * PredictedComputeNs(plan));
  figures.set_planning_time_ns(plan.planning_time_ns());
  figures.set_ranks(plan.programs_size());
  figures.set_strategy(plan.strategy());
  figures.set_costs_version(plan.profile_version());
  return figures;
}

store::v1::IterationReported FiguresOf(const std::vector<v1::Op>& ops,
                                       const v1::ReportIterationRequest& report) {
  store::v1::IterationReported figures;
  figures.set_rank(report.rank());
  figures.set_iteration(report.iteration());
  figures.set_duration_ns(report.duration_ns());
  figures.set_waited_for_program_ns(report.waited_for_program_ns());
  figures.set_compute_ns(MeasuredNs(ops, report, IsCompute));
  figures.set_optimizer_step_ns(MeasuredNs(ops, report, IsOptimizerStep));
  figures.set_loss(report.loss());
  figures.set_gradient_norm(report.gradient_norm());
  *figures.mutable_part_norms() = report.part_norms();
  figures.set_learning_rate(report.learning_rate());
  *figures.mutable_tasks() = report.tasks();
  figures.set_router_balance_loss(report.router_balance_loss());
  figures.set_router_z_loss(report.router_z_loss());
  figures.set_routed_expert_rows(report.routed_expert_rows());
  figures.set_dropped_expert_rows(report.dropped_expert_rows());
  *figures.mutable_expert_rows() = report.expert_rows();
  *figures.mutable_fullest_expert_rows() = report.fullest_expert_rows();
  if (report.has_validation()) {
    *figures.mutable_validation() = report.validation();
    figures.mutable_validation()->clear_instructions();
  }
  return figures;
}

v1::IterationSummary Summarize(const store::v1::IterationPlanned& plan,
                               const std::vector<store::v1::IterationReported>& reports) {
  v1::IterationSummary summary;
  summary.set_iteration(plan.iteration());
  summary.set_real_tokens(plan.real_tokens());
  summary.set_computed_tokens(plan.computed_tokens());
  summary.set_loss_tokens(plan.loss_tokens());
  summary.set_predicted_ns(plan.makespan_ns());
  summary.set_planning_time_ns(plan.planning_time_ns());
  summary.set_micro_batches(plan.micro_batches());
  summary.set_strategy(plan.strategy());
  for (const store::v1::IterationReported& report : reports) {
    summary.set_loss(summary.loss() + report.loss());
    summary.set_router_balance_loss(summary.router_balance_loss() + report.router_balance_loss());
    summary.set_router_z_loss(summary.router_z_loss() + report.router_z_loss());
    summary.set_routed_expert_rows(summary.routed_expert_rows() + report.routed_expert_rows());
    summary.set_dropped_expert_rows(summary.dropped_expert_rows() + report.dropped_expert_rows());
    summary.set_gradient_norm(std::max(summary.gradient_norm(), report.gradient_norm()));
    summary.set_learning_rate(std::max(summary.learning_rate(), report.learning_rate()));
    summary.set_measured_ns(std::max(summary.measured_ns(), report.duration_ns()));
    summary.set_waited_for_program_ns(
        std::max(summary.waited_for_program_ns(), report.waited_for_program_ns()));
  }
  AddTasks(
      reports, [](const store::v1::IterationReported& report) { return report.tasks(); }, summary);
  AddPartNorms(reports, summary);
  if (plan.has_validation()) *summary.mutable_validation() = SummarizeValidation(plan.validation(), reports);
  summary.set_bubble(Bubble(ComputeNs(reports), plan.ranks(), summary.measured_ns()));
  summary.set_predicted_bubble(Bubble(plan.compute_ns(), plan.ranks(), summary.predicted_ns()));
  return summary;
}

}  // namespace penstock
