// `penstock compare`: the same global batches under several policies.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mesh/rank_places.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/share_weights_flag.h"
#include "planner/cli/text_table.h"

namespace penstock::cli {
namespace {

struct CompareFlags {
  PlanRequestFlags request;
  std::vector<v1::Policy> policies = {v1::POLICY_PADDING, v1::POLICY_PACKED, v1::POLICY_DYNAMIC};
  uint64_t batches = 1;
  int threads = 1;
  bool json = false;
};

absl::Status ComparePolicy(const v1::JobSpec& job, const std::vector<v1::Batch>& batches,
                           const core::RunTasks& run_tasks, std::vector<PlanSummary>& rows) {
  const std::string policy = PolicyName(job.planning().policy());
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::StrategyPlanner> planner,
                            core::StrategyPlanner::Create(job, core::Planner::Explain::kChanges, run_tasks));
  for (const v1::Batch& batch : batches) {
    const auto start = std::chrono::steady_clock::now();
    const absl::StatusOr<v1::Plan> plan = PlanAndCheck(*planner, batch, run_tasks);
    const std::chrono::duration<double, std::milli> duration = std::chrono::steady_clock::now() - start;
    if (plan.ok())
      rows.push_back(Summarize(policy, batch, *plan));
    else if (IsInfeasible(plan.status()))
      rows.push_back(SummarizeInfeasible(policy, batch, duration.count(), NameFlags(plan.status())));
    else
      return plan.status();
  }
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Mean(const std::vector<PlanSummary>& rows, double PlanSummary::*field) {
  double sum = 0;
  for (const PlanSummary& row : rows) sum += row.*field;
  return sum / static_cast<double>(rows.size());
}

// `rows` are all of one policy. `groups`: with a column for what ranks wait inside their stage groups.
void AddMeans(const std::string& policy, const std::vector<PlanSummary>& rows, bool groups,
              TextTable& table) {
  std::vector<PlanSummary> feasible;
  std::vector<double> planning;
  for (const PlanSummary& row : rows) {
    planning.push_back(row.planning_ms);
    if (row.feasible) feasible.push_back(row);
  }
  const std::string count = absl::StrCat(feasible.size(), "/", rows.size());
  std::vector<std::string> cells = {policy, count, Fixed(Median(planning), 1)};
  if (feasible.empty()) {
    cells.resize(cells.size() + (groups ? 7 : 6), "-");
    return table.AddRow(std::move(cells));
  }
  double peak = 0, group_wait = 0;
  for (const PlanSummary& row : feasible) {
    peak = std::max(peak, row.peak_memory_mb);
    group_wait += GroupWait(row) / static_cast<double>(feasible.size());
  }
  cells.insert(cells.end(), {Fixed(Mean(feasible, &PlanSummary::makespan_ms), 1),
                             Fixed(Mean(feasible, &PlanSummary::lower_bound_ms), 1),
                             Percent(Mean(feasible, &PlanSummary::gap)),
                             Percent(Mean(feasible, &PlanSummary::padding_efficiency)),
                             Percent(Mean(feasible, &PlanSummary::bubble))});
  if (groups) cells.push_back(Percent(group_wait));
  cells.push_back(Fixed(peak, 0));
  table.AddRow(std::move(cells));
}

void PrintTable(const std::vector<PlanSummary>& rows, size_t batches, bool groups) {
  std::vector<std::string> header = {"policy",         "feasible", "planning ms (median)", "makespan ms",
                                     "lower bound ms", "gap",      "padding efficiency",   "bubble"};
  if (groups) header.push_back("of it in groups");
  header.push_back("peak memory MB");
  TextTable table(std::move(header));
  for (size_t first = 0; first < rows.size(); first += batches) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
    AddMeans(begin->policy, {begin, begin + static_cast<std::ptrdiff_t>(batches)}, groups, table);
  }
  std::cout << table.ToString() << "Means over " << batches << (batches == 1 ? " batch" : " batches")
            << "; peak memory is the highest.\n";
  for (const PlanSummary& row : rows)
    if (!row.feasible) std::cout << row.policy << ", batch " << row.batch << ": " << row.reason << "\n";
}

absl::Status RunCompare(const CompareFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, flags.request.ReadJob());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Batch> batches,
                            flags.request.ReadBatches(flags.batches, job.model().architecture()));
  TaskPool threads(flags.threads);
  std::vector<PlanSummary> rows;
  for (v1::Policy policy : flags.policies) {
    flags.request.SetPlanning(policy, &job);
    SetTypicalSamples(batches, &job);
    const absl::StatusOr<std::string> weights =
        ChooseWeightsOfShares(flags.request.planning.share_weights, batches, threads.AsFunction(), &job);
    // Without any that help, planning with shares that are alike says what is wrong.
    if (weights.ok() && !weights->empty()) std::cerr << PolicyName(policy) << ": " << *weights << "\n";
    PENSTOCK_RETURN_IF_ERROR(NameFlags(ComparePolicy(job, batches, threads.AsFunction(), rows)));
  }
  if (flags.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const PlanSummary& row : rows) json.push_back(ToJson(row));
    std::cout << DumpJson(json) << "\n";
  } else {
    PrintTable(rows, batches.size(), HasGroups(job.mesh()));
  }
  for (const PlanSummary& row : rows)
    if (row.feasible) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no policy has a plan for any batch: ", rows.front().reason));
}

}  // namespace

void AddCompareCommand(CommandSet& commands) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* command = commands.Add(
      {.name = "compare",
       .purpose = "Plans the same global batches under several policies",
       .examples = "penstock compare --profile gpt.json --lengths lengths.csv --rows 0:256 --pp 4 --dp 1 "
                   "--max-length 8192 --policies padding,packed,dynamic --batches 4"});
  flags->request.AddTo(*command);
  AddPoliciesFlag(*command, flags->policies);
  command
      ->add_option("--batches", flags->batches,
                   "Global batches: rows A:B, then the next B-A rows, and so on (1)")
      ->check(CLI::Range(1U, 1U << 20));
  AddThreadsFlag(*command, flags->threads);
  command->add_flag("--json", flags->json, "Print an array with one object for each policy and batch");
  commands.OnRun(command, [flags] { return RunCompare(*flags); });
}

}  // namespace penstock::cli
