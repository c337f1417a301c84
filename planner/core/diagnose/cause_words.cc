#include "planner/core/diagnose/cause_words.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace penstock::core {
std::vector<int32_t> NumbersOfRanks(const Timeline& timeline, const std::vector<int32_t>& ranks) {
  std::vector<int32_t> numbers;
  for (const int32_t rank : ranks) numbers.push_back(timeline.rank_numbers[rank]);
  return numbers;
}

std::string PlaceOfRank(const Timeline& timeline, int32_t rank) {
  return absl::StrFormat("rank %d (replica %d, stage %d)", timeline.rank_numbers[rank],
                         timeline.places[rank].named_replica(), timeline.places[rank].stage);
}

const char* NameOfCause(CauseKind kind) {
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
    case CauseKind::kLateBatches:
      return "late_batches";
    case CauseKind::kSharedCores:
      return "shared_cores";
    case CauseKind::kWrongCosts:
      return "wrong_costs";
  }
  return "";
}

std::string DescribeCause(const Timeline& timeline, const Cause& cause) {
  switch (cause.kind) {
    case CauseKind::kSlowRank:
      return absl::StrFormat("%s computes %.2f times as long as its peers for the same work (+- %.1f %%)",
                             PlaceOfRank(timeline, cause.rank), cause.factor, 100 * cause.uncertainty);
    case CauseKind::kUnequalWork:
      return absl::StrFormat("micro-batches have unequal work: it varies by %.0f %%, the same on all stages",
                             100 * (cause.factor - 1));
    case CauseKind::kStageSplit:
      return absl::StrFormat("stages are unequal: stage %d takes %.2f times the mean", cause.stage,
                             cause.factor);
    case CauseKind::kSlowLink:
      return absl::StrCat("transfers ", cause.both_ways ? "between " : "from ",
                          PlaceOfRank(timeline, cause.rank), cause.both_ways ? " and " : " to ",
                          PlaceOfRank(timeline, cause.peer),
                          absl::StrFormat(" take %.1f times as long as others", cause.factor));
    case CauseKind::kSlowRing:
      return absl::StrFormat("collectives of ranks %s take %.1f times as long as those of others",
                             absl::StrJoin(NumbersOfRanks(timeline, cause.ring), ", "), cause.factor);
    case CauseKind::kLateStart:
      return absl::StrCat(PlaceOfRank(timeline, cause.rank), " begins steps later than the others");
    case CauseKind::kHostStalls:
      return absl::StrCat(PlaceOfRank(timeline, cause.rank), " lets time pass between its operations");
    case CauseKind::kStalledPasses:
      return absl::StrFormat("%.1f passes a step of %s take far longer than others of the same work",
                             cause.factor, PlaceOfRank(timeline, cause.rank));
    case CauseKind::kLateBatches:
      return "ranks wait for the batches of steps, or for what is to be done with them";
    case CauseKind::kSharedCores:
      return absl::StrFormat(
          "others have the %s of %s: passes take %.2f times as long as they compute",
          cause.ring.size() == 1 ? "core" : "cores",
          cause.ring.size() == 1
              ? PlaceOfRank(timeline, cause.ring.front())
              : absl::StrCat("ranks ", absl::StrJoin(NumbersOfRanks(timeline, cause.ring), ", ")),
          cause.factor);
    case CauseKind::kWrongCosts:
      return absl::StrFormat("costs are wrong: %s took %.2f times what was foreseen", cause.subject,
                             cause.factor);
  }
  return "";
}

const char* AdviceFor(CauseKind kind) {
  switch (kind) {
    case CauseKind::kSlowRank:
      return "look at its device: temperature, clocks, who else uses it; then train without its host";
    case CauseKind::kUnequalWork:
      return "let samples be put into micro-batches of equal work: `penstock compare --lengths ...` says "
             "what that brings";
    case CauseKind::kStageSplit:
      return "move layers to the other stages: `penstock up --stage-split auto` and `penstock plan "
             "--stage-split auto` find the split for a cost profile";
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
    case CauseKind::kLateBatches:
      return "feed batches earlier, more of them ahead (`penstock up --look-ahead N`), and look at how long "
             "the feeder and planning take (`penstock status`)";
    case CauseKind::kSharedCores:
      return "give each rank a core of its own: fewer ranks or threads on its host (`penstock up --dp N "
             "--threads N`), no other work there, no limit of CPU time";
    case CauseKind::kWrongCosts:
      return "let costs follow what is measured (a job without `--fixed-costs`), or measure them anew: "
             "`penstock profile measure`";
  }
  return "";
}

std::vector<int32_t> RanksOfCause(const Cause& cause) {
  std::vector<int32_t> ranks = cause.ring;
  for (const int32_t rank : {cause.rank, cause.peer}) {
    if (rank >= 0) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace penstock::core
