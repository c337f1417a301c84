#include "planner/service/engine/summary.h"

#include <algorithm>
#include <cstdint>

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

double MeasuredComputeNs(const v1::Program& program, const v1::ReportIterationRequest& report) {
  double sum = 0;
  for (const v1::MeasuredInstruction& measured : report.instructions()) {
    if (IsCompute(program.instructions(measured.id()).op()))
      sum += static_cast<double>(measured.duration_ns());
  }
  return sum;
}

double Bubble(double compute_ns, int ranks, int64_t total_ns) {
  if (total_ns <= 0) return 0;
  return 1.0 - compute_ns / (static_cast<double>(ranks) * static_cast<double>(total_ns));
}

}  // namespace

v1::IterationSummary Summarize(const v1::Plan& plan, const std::vector<v1::ReportIterationRequest>& reports) {
  v1::IterationSummary summary;
  summary.set_iteration(plan.iteration());
  summary.set_real_tokens(plan.real_tokens());
  summary.set_computed_tokens(plan.computed_tokens());
  summary.set_predicted_ns(plan.predicted().makespan_ns());
  summary.set_planning_time_ns(plan.planning_time_ns());
  for (const v1::Replica& replica : plan.replicas()) {
    summary.set_micro_batches(summary.micro_batches() + replica.micro_batches_size());
  }
  double compute_ns = 0;
  for (const v1::ReportIterationRequest& report : reports) {
    compute_ns += MeasuredComputeNs(plan.programs(report.rank()), report);
    summary.set_loss(summary.loss() + report.loss());
    summary.set_gradient_norm(std::max(summary.gradient_norm(), report.gradient_norm()));
    summary.set_learning_rate(std::max(summary.learning_rate(), report.learning_rate()));
    summary.set_measured_ns(std::max(summary.measured_ns(), report.duration_ns()));
    summary.set_waited_for_program_ns(
        std::max(summary.waited_for_program_ns(), report.waited_for_program_ns()));
  }
  const int ranks = plan.programs_size();
  summary.set_bubble(Bubble(compute_ns, ranks, summary.measured_ns()));
  summary.set_predicted_bubble(Bubble(PredictedComputeNs(plan), ranks, summary.predicted_ns()));
  return summary;
}

}  // namespace penstock
