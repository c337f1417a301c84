#include "planner/core/feasibility/misfit.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock::core {
namespace {

// Samples that a message lists.
constexpr size_t kMostListed = 4;

// Of the rank of a stage group that has least room.
struct Need {
  int position = 0;
  int rank = 0;
  int64_t bytes = 0;
  int64_t limit = 0;

  int64_t lack() const { return bytes - limit; }
};

Need NeedOf(const ScheduleSpace& space, const Job& job, const TokenSums& sums, int replica, int position) {
  const CostModel& costs = space.costs();
  Need need = {.position = position};
  if (!job.memory_limits.alike()) need.rank = TightestRank(job, costs, replica, position);
  need.bytes =
      (job.memory_limits.alike() ? costs.RankStaticBytes(position) : costs.StaticBytesOfRank(need.rank)) +
      space.BytesAlone(position, sums);
  need.limit = job.memory_limits.Of(need.rank);
  return need;
}

// The rank of the replica that lacks most, the first one of equals.
Need MostNeeded(const ScheduleSpace& space, const Job& job, const TokenSums& sums, int replica) {
  Need most = NeedOf(space, job, sums, replica, 0);
  for (int position = 1; position < space.costs().positions(); ++position) {
    const Need need = NeedOf(space, job, sums, replica, position);
    if (need.lack() > most.lack()) most = need;
  }
  return most;
}

// Of replicas that are alike: the first position that lacks room.
Need FirstThatLacks(const ScheduleSpace& space, const Job& job, const TokenSums& sums) {
  Need need = NeedOf(space, job, sums, /*replica=*/0, 0);
  for (int position = 1; need.lack() <= 0 && position < space.costs().positions(); ++position)
    need = NeedOf(space, job, sums, /*replica=*/0, position);
  return need;
}

// Of the replica that comes nearest to having room.
Need LeastLacking(const ScheduleSpace& space, const Job& job, const TokenSums& sums) {
  Need least = MostNeeded(space, job, sums, /*replica=*/0);
  for (int replica = 1; replica < space.replicas(); ++replica) {
    const Need need = MostNeeded(space, job, sums, replica);
    if (need.lack() < least.lack()) least = need;
  }
  return least;
}

std::string Describe(const Need& need, const Job& job) {
  return absl::StrCat(
      "needs ", need.bytes, " bytes, limit ", need.limit,
      job.memory_limits.alike() ? "" : absl::StrCat(" of rank ", job.world.first_rank + need.rank));
}

// "batch.samples[3], [5], [8], [9] and 12 more".
std::string DescribeSamples(const std::vector<uint32_t>& samples) {
  std::vector<std::string> names;
  for (const uint32_t sample : samples) {
    if (names.size() == kMostListed) break;
    names.push_back(absl::StrCat("[", sample, "]"));
  }
  const size_t more = samples.size() - names.size();
  return absl::StrCat("batch.samples", absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace

std::string DescribeStages(const CostModel& costs, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < costs.stages(); ++stage) {
    if (costs.position_of(stage) == rank) stages.push_back(stage);
  }
  if (stages.size() == 1) return absl::StrCat("stage ", stages.front());
  return absl::StrCat("stages ", absl::StrJoin(stages, ", "), " of rank ", rank);
}

std::string DescribeSample(const ScheduleSpace& space, const Job& job, uint32_t sample,
                           const TokenSums& sums) {
  const Need need =
      job.memory_limits.alike() ? FirstThatLacks(space, job, sums) : LeastLacking(space, job, sums);
  return absl::StrCat("batch.samples[", sample, "]: ", sums.source + sums.target, " tokens do not fit on ",
                      DescribeStages(space.costs(), need.position), ": ", Describe(need, job));
}

std::string DescribeMicroBatches(const ScheduleSpace& space, const Job& job, const MicroBatchTable& table,
                                 absl::Span<const int32_t> slots, int replica) {
  int worst_slot = -1;
  Need most;
  for (const int32_t slot : slots) {
    if (!table.known(slot)) {
      return absl::StrCat("micro-batch of ", DescribeSamples(table.samples(slot)), ": ",
                          DescribeUnknownShape(table.Sums(slot)));
    }
    const Need need = MostNeeded(space, job, table.Sums(slot), replica);
    if (need.lack() <= most.lack()) continue;
    most = need;
    worst_slot = slot;
  }
  if (worst_slot < 0) return "every micro-batch fits alone, but not with the others of its replica";
  return absl::StrCat("micro-batch of ", DescribeSamples(table.samples(worst_slot)), " (",
                      DescribeShape(table.Sums(worst_slot)), ") does not fit on ",
                      DescribeStages(space.costs(), most.position), ": ", Describe(most, job));
}

std::string DescribeShape(const TokenSums& sums) {
  if (sums.layout == Layout::kPacked) return absl::StrCat(sums.source + sums.target, " tokens, packed");
  return absl::StrCat("shape [", sums.rows, ", ", sums.source_length, ", ", sums.target_length, "]");
}

std::string DescribeUnknownShape(const TokenSums& sums) {
  if (sums.layout == Layout::kPacked) {
    return "the profile has no closed form, which the packed layout needs; use padded micro-batches "
           "(job.planning.policy padding, or dynamic with job.planning.layout padded) or a profile with one";
  }
  return absl::StrCat(DescribeShape(sums),
                      " (rows, source, target) is outside of the profile's grid, and the profile has no "
                      "closed form for it; profile larger shapes");
}

}  // namespace penstock::core
