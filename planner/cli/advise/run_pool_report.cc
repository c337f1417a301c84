#include "planner/cli/advise/run_pool_report.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/mesh/rank_places.h"
#include "planner/cli/advise/gain.h"
#include "planner/cli/advise/pool_report.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/text_table.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

std::string PresentName(const v1::JobSpec& job) {
  if (job.strategies().empty()) return MeshName(job.mesh());
  return StrategyNames(std::vector<v1::Strategy>(job.strategies().begin(), job.strategies().end()));
}

bool IsWorthIt(const RunPoolAdvice& advice) {
  return SavedShare(advice.pool_ms, advice.present_ms) >= kWorthSwitching;
}

// "--set 'pp 2 x dp 4; dp 8'".
std::string ChangeFlag(const StrategyPool& pool) {
  return absl::StrCat("--set '", StrategyNames(StrategiesOf(pool)), "'");
}

std::string SwitchText(const RunPoolAdvice& advice, const SwitchCommands& commands) {
  if (!IsWorthIt(advice)) {
    return "What the run has is as fast on these batches, to within 1 %: its lengths have not drifted from "
           "what that is for.\n";
  }
  const std::string again = absl::StrCat(
      commands.resume.empty() ? "end the run, and start it again with its command and" : commands.resume, " ",
      PoolFlag(advice.pool), "\nIt goes on from the newest checkpoint.\n");
  if (commands.change.empty()) return absl::StrCat("To switch: ", again);
  return absl::StrCat("To switch while it runs: ", commands.change, " ", ChangeFlag(advice.pool),
                      "\nIts next iterations without a plan run on the pool; nothing is started again.\n"
                      "Or: ",
                      again);
}

}  // namespace

std::string RunPoolText(const MeasuredRun& run, const RunPoolAdvice& advice, const SwitchCommands& commands) {
  return absl::StrCat(
      "job ", run.job.job_id(), " on ", RanksOf(run.job), " ranks: ", PresentName(run.job),
      "\n  measured      ", Fixed(MeanMeasuredMs(run), 1), " ms an iteration, mean of the last ",
      run.iterations.size(), "\n  planned now   ", Fixed(advice.present_ms, 1), " ms, mean of ",
      run.batches.size(), " of its batches, with ",
      run.fitted ? "costs as they were measured" : "the costs that it began with: none were fitted yet",
      "\n  on the pool   ", Fixed(advice.pool_ms, 1), " ms (saved ",
      GainText(SavedShare(advice.pool_ms, advice.present_ms)), ")\n\n", PoolText(advice.pool), "\n",
      SwitchText(advice, commands));
}

nlohmann::ordered_json RunPoolJson(const MeasuredRun& run, const RunPoolAdvice& advice,
                                   const SwitchCommands& commands) {
  nlohmann::ordered_json json = {{"job", run.job.job_id()},
                                 {"ranks", RanksOf(run.job)},
                                 {"present", PresentName(run.job)},
                                 {"measured_ms", MeanMeasuredMs(run)},
                                 {"planned_ms", advice.present_ms},
                                 {"pool_ms", advice.pool_ms},
                                 {"gain", SavedShare(advice.pool_ms, advice.present_ms)},
                                 {"costs_fitted", run.fitted},
                                 {"batches", run.batches.size()},
                                 {"pool", PoolJson(advice.pool)}};
  if (!commands.resume.empty()) json["command"] = absl::StrCat(commands.resume, " ", PoolFlag(advice.pool));
  if (!commands.change.empty())
    json["command_while_it_runs"] = absl::StrCat(commands.change, " ", ChangeFlag(advice.pool));
  return json;
}

}  // namespace penstock::cli
