#include "planner/cli/explain.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/mesh/rank_places.h"
#include "common/status/status_macros.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/text_table.h"
#include "planner/core/contract/plan_of_mesh.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/strategies/strategy_specs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

// Gains below this are within what another search order would change.
constexpr double kWorthwhile = 0.01;
// Parts that read 0.0% on every rank are left out of the table.
constexpr double kShown = 0.0005;

// Parts of the makespan instead of nanoseconds.
TimeSplit SharesOf(const TimeSplit& split) {
  const double all = std::accumulate(split.begin(), split.end(), 0.0);
  TimeSplit shares = {};
  for (int part = 0; part < kTimeParts; ++part) shares[part] = all > 0 ? split[part] / all : 0;
  return shares;
}

// The rank that computes most, and the one that waits most.
struct Extremes {
  size_t busiest = 0;
  size_t idlest = 0;
};

Extremes ExtremesOf(const std::vector<TimeSplit>& ranks) {
  const auto [idlest, busiest] =
      std::minmax_element(ranks.begin(), ranks.end(),
                          [](const TimeSplit& a, const TimeSplit& b) { return BusyNs(a) < BusyNs(b); });
  return {.busiest = static_cast<size_t>(busiest - ranks.begin()),
          .idlest = static_cast<size_t>(idlest - ranks.begin())};
}

// The mean of a mesh's ranks.
TimeSplit MeanOfMesh(const Explanation& explanation, const ExplainedMesh& mesh) {
  const auto first = explanation.ranks.begin() + mesh.first_rank;
  return MeanOf(std::vector<TimeSplit>(first, first + mesh.ranks));
}

struct ShareColumn {
  std::string title;
  TimeSplit shares;
};

// Of several meshes: how each of them does is what matters.
std::vector<ShareColumn> ShareColumns(const Explanation& explanation) {
  const std::vector<TimeSplit>& ranks = explanation.ranks;
  std::vector<ShareColumn> columns = {{"mean", SharesOf(MeanOf(ranks))}};
  for (const ExplainedMesh& mesh : explanation.meshes)
    columns.push_back({mesh.name, SharesOf(MeanOfMesh(explanation, mesh))});
  const Extremes extremes = ExtremesOf(ranks);
  columns.push_back(
      {absl::StrCat("rank ", extremes.busiest, " (busiest)"), SharesOf(ranks[extremes.busiest])});
  columns.push_back(
      {absl::StrCat("rank ", extremes.idlest, " (waits most)"), SharesOf(ranks[extremes.idlest])});
  return columns;
}

std::string TimeTable(const Explanation& explanation) {
  const std::vector<ShareColumn> columns = ShareColumns(explanation);
  std::vector<std::string> head = {"where the time goes"};
  for (const ShareColumn& column : columns) head.push_back(column.title);
  TextTable table(head);
  for (int part = 0; part < kTimeParts; ++part) {
    std::vector<std::string> row = {Title(static_cast<TimePart>(part))};
    double largest = 0;
    for (const ShareColumn& column : columns) {
      row.push_back(Percent(column.shares[part]));
      largest = std::max(largest, column.shares[part]);
    }
    if (largest >= kShown) table.AddRow(std::move(row));
  }
  return table.ToString();
}

std::string WhatIfTable(const std::vector<WhatIf>& what_ifs) {
  TextTable table({"what if", "makespan ms", "gain", "known by"});
  for (const WhatIf& what_if : what_ifs) {
    if (what_if.makespan_ms > 0)
      table.AddRow(
          {what_if.condition, Fixed(what_if.makespan_ms, 1), Percent(what_if.gain), KindName(what_if.kind)});
    else
      table.AddRow({what_if.condition, "-", "-", "no plan"});
  }
  return table.ToString();
}

Json SharesAsJson(const TimeSplit& split) {
  const TimeSplit shares = SharesOf(split);
  Json json = Json::object();
  for (int part = 0; part < kTimeParts; ++part) json[Key(static_cast<TimePart>(part))] = shares[part];
  return json;
}

Json RankAsJson(const std::vector<TimeSplit>& ranks, size_t rank) {
  Json json = {{"rank", rank}};
  json.update(SharesAsJson(ranks[rank]));
  return json;
}

// Those with advice that gain enough on so many times the ranks; `what_ifs` are sorted.
std::vector<WhatIf> Worthwhile(const std::vector<WhatIf>& what_ifs, WhatIfKind kind, int ranks = 1) {
  std::vector<WhatIf> worthwhile;
  for (const WhatIf& what_if : what_ifs)
    if (what_if.kind == kind && what_if.ranks == ranks && what_if.gain >= kWorthwhile &&
        !what_if.advice.empty())
      worthwhile.push_back(what_if);
  return worthwhile;
}

// "unlimited memory, 12.0%: use more stages".
std::string Recommendation(const WhatIf& what_if) {
  return absl::StrCat(what_if.condition, ", ", Percent(what_if.gain), ": ", what_if.advice);
}

// A plan without ranks has no time to divide.
absl::Status CheckRanks(const v1::Plan& plan) {
  if (plan.programs_size() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("plan.programs: empty");
}

// What would be other is asked of the strategy that the plan is for.
v1::JobSpec SpecOfStrategy(const v1::JobSpec& job, int strategy) {
  if (core::MeshCount(job, strategy) == 1) return core::SpecOfMesh(job, strategy, 0);
  v1::JobSpec spec = job;
  SetStrategies({job.strategies(strategy)}, &spec);
  return spec;
}

// Fills in ranks and meshes.
absl::Status SplitMeshes(const v1::JobSpec& spec, const v1::PlannedBatch& planned, Explanation* explanation) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::StrategyPlanner> planner,
                            core::StrategyPlanner::Create(spec));
  const v1::Plan& plan = planned.plan();
  if (core::MeshCount(plan) != planner->planner(0).meshes())
    return absl::InvalidArgumentError("plan.meshes: not those of the job's strategy");
  for (int mesh = 0; mesh < core::MeshCount(plan); ++mesh) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::vector<TimeSplit> ranks,
        SplitTime(planner->planner(0).planner(mesh), planned.batch(), core::PlanOfMesh(plan, mesh)));
    if (!plan.meshes().empty()) {
      explanation->meshes.push_back({.name = MeshName(plan.meshes(mesh).mesh()),
                                     .first_rank = static_cast<int>(explanation->ranks.size()),
                                     .ranks = static_cast<int>(ranks.size())});
    }
    explanation->ranks.insert(explanation->ranks.end(), ranks.begin(), ranks.end());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Explanation> Explain(const v1::JobSpec& job, const v1::PlannedBatch& planned,
                                    const std::function<void(const std::string&)>& progress,
                                    const core::RunTasks& run_tasks) {
  PENSTOCK_RETURN_IF_ERROR(CheckRanks(planned.plan()));
  const v1::JobSpec spec = SpecOfStrategy(job, static_cast<int>(planned.plan().strategy()));
  Explanation explanation;
  PENSTOCK_RETURN_IF_ERROR(SplitMeshes(spec, planned, &explanation));
  PENSTOCK_ASSIGN_OR_RETURN(explanation.what_ifs,
                            AskWhatIf(spec, planned, explanation.ranks, progress, run_tasks));
  PENSTOCK_ASSIGN_OR_RETURN(explanation.noise, CompareUnderNoise(spec, planned, run_tasks));
  return explanation;
}

namespace {

// On the ranks that there are.
std::string ConclusionOfMesh(const Explanation& explanation) {
  const std::vector<WhatIf> plans = Worthwhile(explanation.what_ifs, WhatIfKind::kPlan);
  if (plans.size() > 1)
    return absl::StrCat("Most to gain: ", Recommendation(plans[0]), ". Next: ", Recommendation(plans[1]),
                        ".");
  if (plans.size() == 1) return absl::StrCat("Most to gain: ", Recommendation(plans[0]), ".");
  const std::vector<WhatIf> estimates = Worthwhile(explanation.what_ifs, WhatIfKind::kEstimate);
  if (estimates.empty()) {
    return absl::StrCat("Nothing gains 1 %: this plan is about as fast as its ",
                        explanation.meshes.empty() ? "mesh" : "meshes", " can be.");
  }
  return absl::StrCat("No other plan gains 1 %. If all ranks could be equally busy, about ",
                      Percent(estimates[0].gain), " would be gained: ", estimates[0].advice, ".");
}

}  // namespace

std::string Conclusion(const Explanation& explanation) {
  const std::vector<WhatIf> larger = Worthwhile(explanation.what_ifs, WhatIfKind::kPlan, 2);
  std::string conclusion = ConclusionOfMesh(explanation);
  if (larger.empty()) return conclusion;
  return absl::StrCat(conclusion, " On twice as many GPUs, ", Percent(larger[0].gain), ": ", larger[0].advice,
                      ".");
}

std::string ToText(const Explanation& explanation) {
  const std::string noise =
      explanation.noise.has_value() ? absl::StrCat(ToText(*explanation.noise), "\n") : "";
  return absl::StrCat(TimeTable(explanation), "\n", WhatIfTable(explanation.what_ifs), "\n", noise,
                      Conclusion(explanation), "\n");
}

Json ToJson(const Explanation& explanation) {
  const Extremes extremes = ExtremesOf(explanation.ranks);
  Json what_ifs = Json::array();
  for (const WhatIf& what_if : explanation.what_ifs) {
    const bool planned = what_if.makespan_ms > 0;
    what_ifs.push_back({{"condition", what_if.condition},
                        {"kind", KindName(what_if.kind)},
                        {"makespan_ms", planned ? Json(what_if.makespan_ms) : Json()},
                        {"gain", planned ? Json(what_if.gain) : Json()},
                        {"ranks", what_if.ranks},
                        {"advice", what_if.advice}});
  }
  Json parts = Json::array();
  for (int part = 0; part < kTimeParts; ++part)
    parts.push_back({Key(static_cast<TimePart>(part)), Title(static_cast<TimePart>(part))});
  Json time = {{"mean", SharesAsJson(MeanOf(explanation.ranks))},
               {"busiest", RankAsJson(explanation.ranks, extremes.busiest)},
               {"idlest", RankAsJson(explanation.ranks, extremes.idlest)}};
  for (const ExplainedMesh& mesh : explanation.meshes) {
    Json of_mesh = {{"mesh", mesh.name}};
    of_mesh.update(SharesAsJson(MeanOfMesh(explanation, mesh)));
    time["meshes"].push_back(std::move(of_mesh));
  }
  Json json = {{"parts", std::move(parts)},
               {"time", std::move(time)},
               {"what_if", std::move(what_ifs)},
               {"conclusion", Conclusion(explanation)}};
  if (explanation.noise.has_value()) json["noise"] = ToJson(*explanation.noise);
  return json;
}

}  // namespace penstock::cli
