#include "planner/cli/diagnose/diagnosis_report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/cli/text_table.h"
#include "planner/core/diagnose/cause_words.h"

namespace penstock::cli {
namespace {

using core::Cause;

// More are in the JSON.
constexpr size_t kMostRanksShown = 32;
constexpr size_t kMostPartsShown = 40;

// A profile that is so far off makes plans that are worse than they could be.
bool IsWrong(double foreseen_factor) { return foreseen_factor > 1.15 || foreseen_factor < 1 / 1.15; }

// Of means, which are no whole nanoseconds.
double MillisecondsOf(double ns) { return ns / 1e6; }

// Of many ranks those that compute most.
std::vector<core::MeasuredRankTime> RanksShown(const core::Diagnosis& diagnosis) {
  std::vector<core::MeasuredRankTime> ranks = diagnosis.ranks;
  if (ranks.size() <= kMostRanksShown) return ranks;
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const core::MeasuredRankTime& one, const core::MeasuredRankTime& other) {
                     return one.shares.computing() > other.shares.computing();
                   });
  ranks.resize(kMostRanksShown);
  return ranks;
}

// Of a job whose stages are held by several ranks each that say so.
bool AnyWaitsInGroup(const core::Diagnosis& diagnosis) {
  return std::ranges::any_of(diagnosis.ranks,
                             [](const core::MeasuredRankTime& rank) { return rank.shares.in_group > 0; });
}

std::string RankTable(const core::Timeline& timeline, const core::Diagnosis& diagnosis) {
  const bool groups = AnyWaitsInGroup(diagnosis);
  const auto insert_group = [&](std::vector<std::string> cells, const std::string& cell) {
    if (groups) cells.insert(cells.begin() + 5, cell);
    return cells;
  };
  TextTable table(insert_group({"% of the step", "forward", "backward", "weights", "+-", "other", "exchange",
                                "batch", "host", "waiting"},
                               "in group"));
  const auto cell = [](double share) { return Fixed(100 * share, 1); };
  for (const core::MeasuredRankTime& rank : RanksShown(diagnosis)) {
    const core::RankShares& shares = rank.shares;
    table.AddRow(insert_group(
        {core::PlaceOfRank(timeline, rank.rank), cell(shares.forward), cell(shares.backward),
         cell(shares.weights), cell(rank.computing_uncertainty), cell(shares.other), cell(shares.exchange),
         cell(shares.batch_wait), cell(shares.host), cell(shares.waiting)},
        cell(shares.in_group)));
  }
  std::string report = absl::StrCat(
      "Where the time of ranks went (+-: of what they compute, over the steps):\n", table.ToString());
  if (diagnosis.ranks.size() > kMostRanksShown)
    absl::StrAppend(&report, diagnosis.ranks.size() - kMostRanksShown,
                    " ranks that compute less are left out: --json\n");
  return report;
}

std::string NameOfPart(const core::Timeline& timeline, const core::CriticalPart& part) {
  const std::string& name = timeline.names[part.name];
  if (part.host) return absl::StrCat("host, before or after ", name);
  return part.operations > 1 ? absl::StrCat(name, " x ", part.operations) : name;
}

std::string RankOfPart(const core::Timeline& timeline, const core::CriticalPart& part) {
  if (part.peer < 0) return core::PlaceOfRank(timeline, part.rank);
  return absl::StrCat("rank ", timeline.rank_numbers[part.rank], " to rank ",
                      timeline.rank_numbers[part.peer]);
}

std::string CriticalPathReport(const core::Timeline& timeline, const core::CriticalPath& path) {
  TextTable table({"rank", "what", "from ms", "takes ms"});
  const size_t shown = std::min(path.parts.size(), kMostPartsShown);
  for (size_t i = 0; i < shown; ++i) {
    const core::CriticalPart& part = path.parts[i];
    table.AddRow({RankOfPart(timeline, part), NameOfPart(timeline, part),
                  Fixed(MillisecondsOf(static_cast<double>(part.start_ns)), 1),
                  Fixed(MillisecondsOf(static_cast<double>(part.duration_ns)), 1)});
  }
  std::string report =
      absl::StrFormat("What decided how long step %d took (%.1f ms, the median), one after the other:\n%s",
                      path.step, MillisecondsOf(static_cast<double>(path.measured_ns)), table.ToString());
  if (path.parts.size() > shown) absl::StrAppend(&report, path.parts.size() - shown, " more: --json\n");
  return report;
}

nlohmann::ordered_json RankJson(const core::Timeline& timeline, const core::MeasuredRankTime& rank) {
  const core::RankShares& shares = rank.shares;
  return {{"rank", timeline.rank_numbers[rank.rank]},
          {"replica", timeline.places[rank.rank].named_replica()},
          {"stage", timeline.places[rank.rank].stage},
          {"forward", shares.forward},
          {"backward", shares.backward},
          {"weights", shares.weights},
          {"computing_uncertainty", rank.computing_uncertainty},
          {"other", shares.other},
          {"in_group", shares.in_group},
          {"exchange", shares.exchange},
          {"batch", shares.batch_wait},
          {"host", shares.host},
          {"waiting", shares.waiting}};
}

nlohmann::ordered_json CriticalPathJson(const core::Timeline& timeline, const core::CriticalPath& path) {
  nlohmann::ordered_json json = {{"step", path.step},
                                 {"measured_ms", MillisecondsOf(static_cast<double>(path.measured_ns))},
                                 {"parts", nlohmann::ordered_json::array()}};
  for (const core::CriticalPart& part : path.parts) {
    nlohmann::ordered_json one = {{"rank", timeline.rank_numbers[part.rank]}};
    if (part.peer >= 0) one["peer"] = timeline.rank_numbers[part.peer];
    one["operation"] = timeline.names[part.name];
    one["host"] = part.host;
    one["operations"] = part.operations;
    one["start_ms"] = MillisecondsOf(static_cast<double>(part.start_ns));
    one["duration_ms"] = MillisecondsOf(static_cast<double>(part.duration_ns));
    json["parts"].push_back(std::move(one));
  }
  return json;
}

std::string CausesReport(const core::Timeline& timeline, const core::Diagnosis& diagnosis) {
  if (diagnosis.causes.empty()) return "No cause stands out: nothing to mend would save 1 %.\n";
  std::string report = "What mending each cause alone would save:\n";
  for (const Cause& cause : diagnosis.causes) {
    absl::StrAppendFormat(&report, "  %5.1f %%  %s\n           %s\n", 100 * cause.gain,
                          core::DescribeCause(timeline, cause), core::AdviceFor(cause.kind));
  }
  return report;
}

}  // namespace

std::string DiagnosisReport(const core::Timeline& timeline, const core::Diagnosis& diagnosis) {
  std::string report = absl::StrFormat(
      "%d steps of %d ranks (%d stages, %d replicas)\n\n"
      "  step, measured            %.1f ms\n"
      "  ideal step                %.1f ms: passes at their mean, all else at its median\n"
      "  slowdown                  %.3f\n"
      "  replay error              %.2f %%\n",
      timeline.steps.size(), timeline.places.size(), timeline.stages, timeline.replicas,
      MillisecondsOf(diagnosis.measured_ns), MillisecondsOf(diagnosis.ideal_ns), diagnosis.slowdown(),
      100 * diagnosis.replay_error);
  if (diagnosis.foreseen_factor > 0) {
    absl::StrAppendFormat(
        &report, "  passes, measured/foreseen %.2f%s\n", diagnosis.foreseen_factor,
        IsWrong(diagnosis.foreseen_factor) ? ": the costs that plans were made with are off" : "");
  }
  return absl::StrCat(report, "\n", CausesReport(timeline, diagnosis), "\n", RankTable(timeline, diagnosis),
                      "\n", CriticalPathReport(timeline, diagnosis.critical_path));
}

nlohmann::ordered_json DiagnosisJson(const core::Timeline& timeline, const core::Diagnosis& diagnosis) {
  nlohmann::ordered_json json = {{"steps", timeline.steps.size()},
                                 {"ranks", timeline.places.size()},
                                 {"stages", timeline.stages},
                                 {"replicas", timeline.replicas},
                                 {"measured_ms", MillisecondsOf(diagnosis.measured_ns)},
                                 {"ideal_ms", MillisecondsOf(diagnosis.ideal_ns)},
                                 {"slowdown", diagnosis.slowdown()},
                                 {"replay_error", diagnosis.replay_error},
                                 {"foreseen_factor", diagnosis.foreseen_factor},
                                 {"causes", nlohmann::ordered_json::array()}};
  for (const Cause& cause : diagnosis.causes) {
    nlohmann::ordered_json one = {{"cause", core::NameOfCause(cause.kind)}, {"gain", cause.gain}};
    if (cause.rank >= 0) one["rank"] = timeline.rank_numbers[cause.rank];
    if (cause.peer >= 0) one["peer"] = timeline.rank_numbers[cause.peer];
    if (!cause.ring.empty()) one["ring"] = core::NumbersOfRanks(timeline, cause.ring);
    if (cause.stage >= 0) one["stage"] = cause.stage;
    if (!cause.subject.empty()) one["subject"] = cause.subject;
    one["factor"] = cause.factor;
    if (cause.uncertainty > 0) one["uncertainty"] = cause.uncertainty;
    one["description"] = core::DescribeCause(timeline, cause);
    one["advice"] = core::AdviceFor(cause.kind);
    json["causes"].push_back(std::move(one));
  }
  // By stage, where they are known.
  if (!timeline.layers_of_stage.empty()) json["layers"] = timeline.layers_of_stage;
  json["where"] = nlohmann::ordered_json::array();
  for (const core::MeasuredRankTime& rank : diagnosis.ranks)
    json["where"].push_back(RankJson(timeline, rank));
  json["critical_path"] = CriticalPathJson(timeline, diagnosis.critical_path);
  return json;
}

}  // namespace penstock::cli
