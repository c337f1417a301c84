#include "planner/cli/advise/run_advice_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/cli/advise/gain.h"
#include "planner/cli/advise/present_way.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/text_table.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

double Gain(double planned_ms, const RunAdvice& advice) { return SavedShare(planned_ms, advice.planned_ms); }

double GainOf(const LeverValue& value) { return SavedShare(value.planned_ms, value.before_ms); }

std::string DescribeWay(const Candidate& way) {
  return absl::StrCat(DescribeMesh(way), ", policy ", PolicyName(way.policy), ", schedule ",
                      ScheduleName(way.schedule), ", stage split ", StageSplitName(way.stage_split),
                      way.shard_optimizer_state ? ", divided optimizer state" : "");
}

std::string PresentText(const MeasuredRun& run, const RunAdvice& advice) {
  const double measured = MeanMeasuredMs(run), planned = MeanPlannedMs(run);
  std::string text = absl::StrCat(
      "job ", run.job.job_id(), " on ", RanksOf(run.job.mesh()), " ranks: ", DescribeWay(advice.present),
      "\n", "  measured      ", Fixed(measured, 1), " ms an iteration, mean of the last ",
      run.iterations.size(), "; planned then ", Fixed(planned, 1), " ms (",
      GainText(measured > 0 ? planned / measured - 1 : 0), ")\n", "  planned now   ",
      Fixed(advice.planned_ms, 1), " ms, mean of ", run.batches.size(), " of its batches, with ",
      run.fitted ? "costs as they were measured" : "the costs that it began with: none were fitted yet",
      "\n");
  if (const double waited = MeanWaitedMs(run); waited > 0.01 * measured) {
    absl::StrAppend(&text, "  waited        ", Fixed(waited, 1),
                    " ms of it for plans: more threads for the planner, or a longer --look-ahead\n");
  }
  return text;
}

std::string OthersText(const RunAdvice& advice) {
  TextTable table({"fastest with as many ranks", "planned ms", "saved", "peak memory MB"});
  for (const OtherWay& other : advice.others) {
    table.AddRow({DescribeWay(other.way), Fixed(other.planned_ms, 1),
                  GainText(Gain(other.planned_ms, advice)), Fixed(Megabytes(other.peak_memory_bytes), 0)});
  }
  return absl::StrCat("\n", table.ToString());
}

std::string LeversText(const RunAdvice& advice) {
  TextTable table({"one change alone", "now", "instead", "planned ms", "saved ms", "saved"});
  for (const LeverValue& value : advice.levers) {
    if (!value.feasible) {
      table.AddRow({value.lever.name, value.lever.now, value.lever.instead, "does not fit", "", ""});
      continue;
    }
    table.AddRow({value.lever.name, value.lever.now, value.lever.instead, Fixed(value.planned_ms, 1),
                  Fixed(value.saved_ms(), 1), GainText(GainOf(value))});
  }
  return absl::StrCat("\n", table.ToString());
}

// Iterations after which a switch has made its start good; 0: never, or not known.
double PaidBackAfter(const MeasuredRun& run, double saved_ms) {
  if (!run.start_seconds.has_value() || saved_ms <= 0) return 0;
  return std::ceil(*run.start_seconds * 1e3 / saved_ms);
}

std::string SwitchText(const MeasuredRun& run, const RunAdvice& advice, const std::string& resume) {
  if (advice.others.empty() || Gain(advice.others.front().planned_ms, advice) < kWorthSwitching)
    return "\nNo other way is planned to be more than 1 % faster: it may stay as it is.\n";
  const OtherWay& best = advice.others.front();
  std::string text = absl::StrCat(
      "\nTo switch: ", resume.empty() ? "end the run, and start it again with its command and" : resume, " ",
      best.flags,
      run.job.planning().layers_per_stage().empty()
          ? ""
          : "\nThe run names its stages (--layers-per-stage): name those of the new mesh, too.",
      "\nIt goes on from the newest checkpoint. ");
  if (!run.start_seconds.has_value()) {
    absl::StrAppend(&text, "What a start takes is not known here.\n");
  } else {
    absl::StrAppend(&text, "Its last start took ", Fixed(*run.start_seconds, 1),
                    " s until the first iteration was done: made good after ",
                    PaidBackAfter(run, advice.planned_ms - best.planned_ms), " iterations.\n");
  }
  return absl::StrCat(text,
                      "`penstock up --auto-tune 3` measures the three best, and goes on with the winner.\n");
}

nlohmann::ordered_json WayJson(const Candidate& way) {
  return {{"pp", way.pipeline},
          {"dp", way.data},
          {"tp", way.tensor},
          {"cp", way.context},
          {"ep", way.expert},
          {"policy", PolicyName(way.policy)},
          {"schedule", ScheduleName(way.schedule)},
          {"stage_split", StageSplitName(way.stage_split)},
          {"shard_optimizer_state", way.shard_optimizer_state}};
}

nlohmann::ordered_json LeverJson(const LeverValue& value) {
  nlohmann::ordered_json json = {{"lever", value.lever.name},
                                 {"now", value.lever.now},
                                 {"instead", value.lever.instead},
                                 {"flags", value.lever.flags},
                                 {"feasible", value.feasible}};
  if (!value.feasible) {
    json["reason"] = value.reason;
    return json;
  }
  json["planned_ms"] = value.planned_ms;
  json["saved_ms"] = value.saved_ms();
  json["gain"] = GainOf(value);
  return json;
}

}  // namespace

std::string RunAdviceText(const MeasuredRun& run, const RunAdvice& advice, const std::string& resume) {
  return absl::StrCat(PresentText(run, advice), OthersText(advice), LeversText(advice),
                      SwitchText(run, advice, resume));
}

nlohmann::ordered_json RunAdviceJson(const MeasuredRun& run, const RunAdvice& advice,
                                     const std::string& resume) {
  using Json = nlohmann::ordered_json;
  Json json = {{"job", run.job.job_id()},
               {"ranks", RanksOf(run.job.mesh())},
               {"present", WayJson(advice.present)},
               {"measured_ms", MeanMeasuredMs(run)},
               {"planned_then_ms", MeanPlannedMs(run)},
               {"waited_for_plans_ms", MeanWaitedMs(run)},
               {"planned_ms", advice.planned_ms},
               {"costs_fitted", run.fitted},
               {"batches", run.batches.size()},
               {"start_seconds", run.start_seconds.has_value() ? Json(*run.start_seconds) : Json()},
               {"others", Json::array()},
               {"levers", Json::array()}};
  for (const OtherWay& other : advice.others) {
    Json way = WayJson(other.way);
    way["planned_ms"] = other.planned_ms;
    way["saved_ms"] = advice.planned_ms - other.planned_ms;
    way["gain"] = Gain(other.planned_ms, advice);
    way["peak_memory_mb"] = Megabytes(other.peak_memory_bytes);
    way["flags"] = other.flags;
    if (!resume.empty()) way["command"] = absl::StrCat(resume, " ", other.flags);
    json["others"].push_back(way);
  }
  for (const LeverValue& value : advice.levers) json["levers"].push_back(LeverJson(value));
  return json;
}

}  // namespace penstock::cli
