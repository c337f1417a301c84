#include "planner/cli/plan_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/mesh/rank_places.h"
#include "common/ratio/ratio.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

constexpr char kGroupCause[] = "group";

// Each cause's sum over the ranks, divided by the time of all ranks.
std::vector<BubbleShare> BubbleByCause(const v1::Prediction& predicted) {
  v1::Bubble sum;
  for (const v1::RankPrediction& rank : predicted.ranks()) {
    sum.set_fill_ns(sum.fill_ns() + rank.bubble().fill_ns());
    sum.set_drain_ns(sum.drain_ns() + rank.bubble().drain_ns());
    sum.set_dependency_ns(sum.dependency_ns() + rank.bubble().dependency_ns());
    sum.set_transfer_ns(sum.transfer_ns() + rank.bubble().transfer_ns());
    sum.set_imbalance_ns(sum.imbalance_ns() + rank.bubble().imbalance_ns());
    sum.set_memory_ns(sum.memory_ns() + rank.bubble().memory_ns());
    sum.set_group_ns(sum.group_ns() + rank.bubble().group_ns());
  }
  const double all = static_cast<double>(predicted.makespan_ns()) * predicted.ranks_size();
  const auto share = [&](int64_t ns) { return Ratio(static_cast<double>(ns), all); };
  return {{"fill", share(sum.fill_ns())},
          {"drain", share(sum.drain_ns())},
          {"dependency", share(sum.dependency_ns())},
          {"transfer", share(sum.transfer_ns())},
          {"imbalance", share(sum.imbalance_ns())},
          {"memory", share(sum.memory_ns())},
          {kGroupCause, share(sum.group_ns())}};
}

// {"1": 150, "4": 2}: samples by the context ranks that they are divided over.
nlohmann::ordered_json ToJson(const std::vector<SpanCount>& spans) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const SpanCount& span : spans) json[absl::StrCat(span.ranks)] = span.samples;
  return json;
}

nlohmann::ordered_json ToJson(const RowExchange& rows) {
  return {{"ms", rows.ms},
          {"exposed_ms", rows.exposed_ms},
          {"micro_batches_in_parts", rows.in_parts},
          {"forward_alone", rows.forward_alone},
          {"cut_rows", rows.cut_rows}};
}

nlohmann::ordered_json ToJson(const std::vector<BubbleShare>& shares) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const BubbleShare& share : shares) json[share.cause] = share.share;
  return json;
}

}  // namespace

double GroupWait(const PlanSummary& summary) {
  double wait = 0;
  for (const BubbleShare& share : summary.bubble_by_cause)
    if (share.cause == absl::string_view(kGroupCause)) wait += share.share;
  return wait;
}

PlanSummary Summarize(const std::string& policy, const v1::Batch& batch, const v1::Plan& plan) {
  PlanSummary summary{.policy = policy, .batch = batch.iteration(), .samples = batch.samples_size()};
  for (const v1::Replica& replica : plan.replicas()) summary.micro_batches += replica.micro_batches_size();
  const double makespan = static_cast<double>(plan.predicted().makespan_ns());
  summary.planning_ms = Milliseconds(plan.planning_time_ns());
  summary.makespan_ms = Milliseconds(plan.predicted().makespan_ns());
  summary.last_backward_ms = Milliseconds(plan.predicted().last_backward_ns());
  summary.lower_bound_ms = Milliseconds(plan.lower_bound_ns());
  summary.gap = plan.lower_bound_ns() > 0 ? makespan / static_cast<double>(plan.lower_bound_ns()) - 1 : 0;
  summary.padding_efficiency =
      Ratio(static_cast<double>(plan.real_tokens()), static_cast<double>(plan.computed_tokens()));
  double busy = 0, peak = 0;
  for (const v1::RankPrediction& rank : plan.predicted().ranks()) {
    busy += static_cast<double>(rank.busy_ns());
    peak = std::max(peak, static_cast<double>(rank.peak_memory_bytes()));
  }
  summary.bubble = 1 - Ratio(busy, makespan * plan.predicted().ranks_size());
  summary.bubble_by_cause = BubbleByCause(plan.predicted());
  summary.peak_memory_mb = peak / kBytesPerMegabyte;
  summary.spans = CountSpans(plan);
  summary.rows = RowExchangeOf(plan);
  summary.schedule = ScheduleName(plan.schedule());
  summary.layers_per_stage.assign(plan.layers_per_stage().begin(), plan.layers_per_stage().end());
  summary.strategy = plan.strategy();
  summary.mesh = MeshName(plan);
  summary.share_weights.assign(plan.options().share_weights().begin(), plan.options().share_weights().end());
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
          {"last_backward_ms", number(summary.last_backward_ms)},
          {"lower_bound_ms", number(summary.lower_bound_ms)},
          {"gap", number(summary.gap)},
          {"padding_efficiency", number(summary.padding_efficiency)},
          {"bubble", number(summary.bubble)},
          {"bubble_by_cause", number(ToJson(summary.bubble_by_cause))},
          {"peak_memory_mb", number(summary.peak_memory_mb)},
          {"spans", number(ToJson(summary.spans))},
          {"expert_rows", number(ToJson(summary.rows))},
          {"schedule", number(summary.schedule)},
          {"layers_per_stage", number(summary.layers_per_stage)},
          {"strategy", number(summary.strategy)},
          {"mesh", number(summary.mesh)},
          {"share_weights", number(summary.share_weights)},
          {"feasible", summary.feasible},
          {"reason", summary.reason}};
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace penstock::cli
