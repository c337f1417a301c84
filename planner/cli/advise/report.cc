#include "planner/cli/advise/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/text_table.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

uint64_t Gpus(const Candidate& candidate) { return RanksOf(MeshOf(candidate)); }

double MakespanMs(const Trial& trial) { return Milliseconds(trial.makespan_ns) / trial.batches; }

// "auto: split-backward" where auto was asked for.
std::string ScheduleText(const Trial& trial) {
  const std::string asked = ScheduleName(trial.candidate.schedule), taken = ScheduleName(trial.schedule);
  return asked == taken ? asked : absl::StrCat(asked, ": ", taken);
}

// "auto: 9,9,8,6": stages of the same size are said once.
std::string SplitText(const Trial& trial) {
  const std::vector<uint32_t>& layers = trial.layers_per_stage;
  const bool equal = std::equal(layers.begin() + 1, layers.end(), layers.begin());
  return absl::StrCat(StageSplitName(trial.candidate.stage_split), ": ",
                      equal && layers.size() > 1 ? absl::StrCat(layers.size(), "x", layers.front())
                                                 : absl::StrJoin(layers, ","));
}

std::string TableOf(const std::vector<Trial>& trials, size_t top) {
  TextTable table({"pp", "dp", "tp", "cp", "ep", "policy", "schedule", "stage split", "sharded", "recompute",
                   "makespan ms", "tokens/s", "per GPU", "gap", "padding efficiency", "peak memory MB"});
  for (size_t i = 0; i < std::min(top, trials.size()); ++i) {
    const Trial& trial = trials[i];
    const double speed = trial.tokens_per_second();
    table.AddRow({absl::StrCat(trial.candidate.pipeline), absl::StrCat(trial.candidate.data),
                  absl::StrCat(trial.candidate.tensor), absl::StrCat(trial.candidate.context),
                  absl::StrCat(trial.candidate.expert), PolicyName(trial.candidate.policy),
                  ScheduleText(trial), SplitText(trial), trial.candidate.shard_optimizer_state ? "yes" : "no",
                  Percent(trial.recompute_share()), Fixed(MakespanMs(trial), 1), Fixed(speed, 0),
                  Fixed(speed / static_cast<double>(Gpus(trial.candidate)), 0), Percent(trial.gap()),
                  Percent(trial.padding_efficiency()), Fixed(Megabytes(trial.peak_memory_bytes), 0)});
  }
  return table.ToString();
}

// Candidates of one mesh that fail for the same reason.
struct Misfits {
  std::vector<Candidate> candidates;
  std::string reason;
};

std::vector<Misfits> GroupByReason(const std::vector<Trial>& infeasible) {
  std::vector<Misfits> groups;
  for (const Trial& trial : infeasible) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Misfits& group) {
      const Candidate& first = group.candidates.front();
      return group.reason == trial.reason && first.pipeline == trial.candidate.pipeline &&
             first.tensor == trial.candidate.tensor && first.context == trial.candidate.context &&
             first.expert == trial.candidate.expert;
    });
    if (found == groups.end()) {
      groups.push_back({{trial.candidate}, trial.reason});
    } else {
      found->candidates.push_back(trial.candidate);
    }
  }
  return groups;
}

// " even" when all have it, nothing when they differ.
template <typename Value, typename Name>
std::string Common(const std::vector<Candidate>& candidates, Value Candidate::*field, const Name& name) {
  for (const Candidate& candidate : candidates) {
    if (candidate.*field != candidates.front().*field) return "";
  }
  return absl::StrCat(", ", name(candidates.front().*field));
}

// "pp 2, dp 4, packed, even": what all of the group share.
std::string Label(const Misfits& group) {
  const std::vector<Candidate>& all = group.candidates;
  return absl::StrCat("pp ", all.front().pipeline, ", dp ", all.front().data,
                      all.front().tensor > 1 ? absl::StrCat(", tp ", all.front().tensor) : "",
                      all.front().context > 1 ? absl::StrCat(", cp ", all.front().context) : "",
                      all.front().expert > 1 ? absl::StrCat(", ep ", all.front().expert) : "",
                      Common(all, &Candidate::policy, PolicyName),
                      all.front().pipeline > 1 ? Common(all, &Candidate::stage_split, StageSplitName) : "",
                      all.front().pipeline > 1 ? Common(all, &Candidate::schedule, ScheduleName) : "",
                      all.front().data * all.front().context > 1
                          ? Common(all, &Candidate::shard_optimizer_state,
                                   [](bool shard) { return shard ? "sharded" : "not sharded"; })
                          : "");
}

nlohmann::ordered_json ToJson(const Candidate& candidate) {
  return {{"pp", candidate.pipeline},
          {"dp", candidate.data},
          {"tp", candidate.tensor},
          {"cp", candidate.context},
          {"ep", candidate.expert},
          {"policy", PolicyName(candidate.policy)},
          {"schedule", ScheduleName(candidate.schedule)},
          {"stage_split", StageSplitName(candidate.stage_split)},
          {"shard_optimizer_state", candidate.shard_optimizer_state}};
}

nlohmann::ordered_json ToJson(const Trial& trial) {
  nlohmann::ordered_json json = ToJson(trial.candidate);
  const double speed = trial.tokens_per_second();
  json["schedule_taken"] = ScheduleName(trial.schedule);
  json["layers_per_stage"] = trial.layers_per_stage;
  json["recompute_share"] = trial.recompute_share();
  json["makespan_ms"] = MakespanMs(trial);
  json["tokens_per_second"] = speed;
  json["tokens_per_second_per_gpu"] = speed / static_cast<double>(Gpus(trial.candidate));
  json["gap"] = trial.gap();
  json["padding_efficiency"] = trial.padding_efficiency();
  json["peak_memory_mb"] = Megabytes(trial.peak_memory_bytes);
  json["flags"] = FlagsOf(trial.candidate);
  return json;
}

// Those that were planned at least once.
size_t Tried(const TournamentResult& result) {
  const auto planned = std::count_if(result.dropped.begin(), result.dropped.end(),
                                     [](const Trial& trial) { return trial.batches > 0; });
  return result.finalists.size() + result.infeasible.size() + static_cast<size_t>(planned);
}

}  // namespace

std::string AdviceText(const TournamentResult& result, size_t top, size_t batches) {
  std::string text;
  if (!result.finalists.empty()) {
    absl::StrAppend(&text, TableOf(result.finalists, top), "Means over ", batches,
                    batches == 1 ? " batch" : " batches", "; peak memory is the highest. ", Tried(result),
                    " ways were tried, ", result.infeasible.size(),
                    " do not fit.\nThe first again: penstock plan ",
                    FlagsOf(result.finalists.front().candidate), " ...\n");
  }
  if (result.infeasible.empty()) return text;
  absl::StrAppend(&text, "\nDo not fit:\n");
  for (const Misfits& group : GroupByReason(result.infeasible)) {
    absl::StrAppend(&text, "  ", Label(group), ": ", group.reason, "\n");
  }
  return text;
}

nlohmann::ordered_json AdviceJson(const TournamentResult& result, size_t top, size_t batches) {
  nlohmann::ordered_json advice = nlohmann::ordered_json::array(), infeasible = advice;
  for (size_t i = 0; i < std::min(top, result.finalists.size()); ++i) {
    advice.push_back(ToJson(result.finalists[i]));
  }
  for (const Trial& trial : result.infeasible) {
    nlohmann::ordered_json json = ToJson(trial.candidate);
    json["reason"] = trial.reason;
    infeasible.push_back(std::move(json));
  }
  return {{"batches", batches},
          {"tried", Tried(result)},
          {"advice", std::move(advice)},
          {"infeasible", std::move(infeasible)}};
}

}  // namespace penstock::cli
