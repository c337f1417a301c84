#include "planner/cli/plan_summary.h"

#include <algorithm>

namespace penstock::cli {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;
constexpr double kBytesPerMegabyte = 1e6;

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

PlanSummary Summarize(const std::string& policy, const v1::Batch& batch, const v1::Plan& plan) {
  PlanSummary summary{.policy = policy, .batch = batch.iteration(), .samples = batch.samples_size()};
  for (const v1::Replica& replica : plan.replicas()) summary.micro_batches += replica.micro_batches_size();
  const double makespan = static_cast<double>(plan.predicted().makespan_ns());
  summary.planning_ms = static_cast<double>(plan.planning_time_ns()) / kNanosecondsPerMillisecond;
  summary.makespan_ms = makespan / kNanosecondsPerMillisecond;
  summary.lower_bound_ms = static_cast<double>(plan.lower_bound_ns()) / kNanosecondsPerMillisecond;
  summary.gap = plan.lower_bound_ns() > 0 ? makespan / static_cast<double>(plan.lower_bound_ns()) - 1 : 0;
  summary.padding_efficiency =
      Ratio(static_cast<double>(plan.real_tokens()), static_cast<double>(plan.computed_tokens()));
  double busy = 0, peak = 0;
  for (const v1::RankPrediction& rank : plan.predicted().ranks()) {
    busy += static_cast<double>(rank.busy_ns());
    peak = std::max(peak, static_cast<double>(rank.peak_memory_bytes()));
  }
  summary.bubble = 1 - Ratio(busy, makespan * plan.predicted().ranks_size());
  summary.peak_memory_mb = peak / kBytesPerMegabyte;
  return summary;
}

PlanSummary SummarizeInfeasible(const std::string& policy, const v1::Batch& batch, double planning_ms,
                                const absl::Status& reason) {
  return {.policy = policy,
          .batch = batch.iteration(),
          .samples = batch.samples_size(),
          .planning_ms = planning_ms,
          .feasible = false,
          .reason = std::string(reason.message())};
}

nlohmann::ordered_json ToJson(const PlanSummary& summary) {
  const auto number = [&](auto value) { return summary.feasible ? nlohmann::ordered_json(value) : nullptr; };
  return {{"policy", summary.policy},
          {"batch", summary.batch},
          {"samples", summary.samples},
          {"micro_batches", number(summary.micro_batches)},
          {"planning_ms", summary.planning_ms},
          {"makespan_ms", number(summary.makespan_ms)},
          {"lower_bound_ms", number(summary.lower_bound_ms)},
          {"gap", number(summary.gap)},
          {"padding_efficiency", number(summary.padding_efficiency)},
          {"bubble", number(summary.bubble)},
          {"peak_memory_mb", number(summary.peak_memory_mb)},
          {"feasible", summary.feasible},
          {"reason", summary.reason}};
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace penstock::cli
