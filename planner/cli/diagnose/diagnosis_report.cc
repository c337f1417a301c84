#include "planner/cli/diagnose/diagnosis_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace penstock::cli {
namespace {

using core::Cause;
using core::CauseKind;

std::string PlaceOf(const core::Timeline& timeline, int32_t rank) {
  return absl::StrFormat("rank %d (replica %d, stage %d)", timeline.rank_numbers[rank],
                         timeline.places[rank].replica, timeline.places[rank].stage);
}

std::vector<int32_t> NumbersOf(const core::Timeline& timeline, const std::vector<int32_t>& ranks) {
  std::vector<int32_t> numbers;
  for (const int32_t rank : ranks) numbers.push_back(timeline.rank_numbers[rank]);
  return numbers;
}

const char* NameOf(CauseKind kind) {
  switch (kind) {
    case CauseKind::kSlowRank:
      return "slow_rank";
    case CauseKind::kUnequalWork:
      return "unequal_work";
    case CauseKind::kStageSplit:
      return "stage_split";
    case CauseKind::kSlowLink:
      return "slow_link";
    case CauseKind::kSlowRing:
      return "slow_ring";
    case CauseKind::kLateStart:
      return "late_start";
    case CauseKind::kHostStalls:
      return "host_stalls";
    case CauseKind::kStalledPasses:
      return "stalled_passes";
  }
  return "";
}

std::string Describe(const core::Timeline& timeline, const Cause& cause) {
  switch (cause.kind) {
    case CauseKind::kSlowRank:
      return absl::StrFormat("%s computes %.2f times as long as its peers for the same work (+- %.1f %%)",
                             PlaceOf(timeline, cause.rank), cause.factor, 100 * cause.uncertainty);
    case CauseKind::kUnequalWork:
      return absl::StrFormat("micro-batches have unequal work: it varies by %.0f %%, the same on all stages",
                             100 * (cause.factor - 1));
    case CauseKind::kStageSplit:
      return absl::StrFormat("stages are unequal: stage %d takes %.2f times the mean", cause.stage,
                             cause.factor);
    case CauseKind::kSlowLink:
      return absl::StrFormat("transfers from %s to %s take %.1f times as long as others",
                             PlaceOf(timeline, cause.rank), PlaceOf(timeline, cause.peer), cause.factor);
    case CauseKind::kSlowRing:
      return absl::StrFormat("collectives of ranks %s take %.1f times as long as those of others",
                             absl::StrJoin(NumbersOf(timeline, cause.ring), ", "), cause.factor);
    case CauseKind::kLateStart:
      return absl::StrCat(PlaceOf(timeline, cause.rank), " begins steps later than the others");
    case CauseKind::kHostStalls:
      return absl::StrCat(PlaceOf(timeline, cause.rank), " lets time pass between its operations");
    case CauseKind::kStalledPasses:
      return absl::StrFormat("%.1f passes a step of %s take far longer than others of the same work",
                             cause.factor, PlaceOf(timeline, cause.rank));
  }
  return "";
}

const char* Advice(CauseKind kind) {
  switch (kind) {
    case CauseKind::kSlowRank:
      return "look at its device: temperature, clocks, who else uses it; then train without its host";
    case CauseKind::kUnequalWork:
      return "let samples be put into micro-batches of equal work: `penstock compare --lengths ...` says "
             "what that brings";
    case CauseKind::kStageSplit:
      return "move layers to the other stages: `penstock plan --stages auto` finds the split for a cost "
             "profile";
    case CauseKind::kSlowLink:
      return "look at the network between their hosts, and at which of its interfaces they use";
    case CauseKind::kSlowRing:
      return "look at the network between these ranks' hosts: one slow link holds all of them up";
    case CauseKind::kLateStart:
      return "look at what it does before its first operation: loading of data, checkpoints, logging";
    case CauseKind::kHostStalls:
      return "look at its host: garbage collection, checkpoints, logging, a CPU that is shared";
    case CauseKind::kStalledPasses:
      return "look for memory that is allocated anew in these passes, and for a device that is shared";
  }
  return "";
}

// A profile that is so far off makes plans that are worse than they could be.
bool IsWrong(double foreseen_factor) { return foreseen_factor > 1.15 || foreseen_factor < 1 / 1.15; }

// Of means, which are no whole nanoseconds.
double MillisecondsOf(double ns) { return ns / 1e6; }

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
  absl::StrAppend(&report, "\n");
  if (diagnosis.causes.empty())
    return absl::StrCat(report, "No cause stands out: nothing to mend would save 1 %.\n");
  absl::StrAppend(&report, "What mending each cause alone would save:\n");
  for (const Cause& cause : diagnosis.causes) {
    absl::StrAppendFormat(&report, "  %5.1f %%  %s\n           %s\n", 100 * cause.gain,
                          Describe(timeline, cause), Advice(cause.kind));
  }
  return report;
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
    nlohmann::ordered_json one = {{"cause", NameOf(cause.kind)}, {"gain", cause.gain}};
    if (cause.rank >= 0) one["rank"] = timeline.rank_numbers[cause.rank];
    if (cause.peer >= 0) one["peer"] = timeline.rank_numbers[cause.peer];
    if (!cause.ring.empty()) one["ring"] = NumbersOf(timeline, cause.ring);
    if (cause.stage >= 0) one["stage"] = cause.stage;
    one["factor"] = cause.factor;
    if (cause.uncertainty > 0) one["uncertainty"] = cause.uncertainty;
    one["description"] = Describe(timeline, cause);
    one["advice"] = Advice(cause.kind);
    json["causes"].push_back(std::move(one));
  }
  return json;
}

}  // namespace penstock::cli
