#include "planner/core/feasibility/misfit.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock::core {
namespace {

// Samples that a message lists.
constexpr size_t kMostListed = 4;

int64_t BytesNeeded(const ScheduleSpace& space, const TokenSums& sums, int rank) {
  return space.costs().RankStaticBytes(rank) + space.BytesAlone(rank, sums);
}

std::string DescribeNeed(const ScheduleSpace& space, const Job& job, const TokenSums& sums, int rank) {
  return absl::StrCat("needs ", BytesNeeded(space, sums, rank), " bytes, limit ", job.memory_limit_bytes);
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

std::string DescribeSample(const ScheduleSpace& space, const Job& job, uint32_t sample, const TokenSums& sums,
                           int rank) {
  return absl::StrCat("batch.samples[", sample, "]: ", sums.source + sums.target, " tokens do not fit on ",
                      DescribeStages(space.costs(), rank), ": ", DescribeNeed(space, job, sums, rank));
}

std::string DescribeMicroBatches(const ScheduleSpace& space, const Job& job, const MicroBatchTable& table,
                                 absl::Span<const int32_t> slots) {
  int worst_slot = -1;
  int worst_rank = 0;
  int64_t most = job.memory_limit_bytes;
  for (const int32_t slot : slots) {
    if (!table.known(slot)) {
      return absl::StrCat("micro-batch of ", DescribeSamples(table.samples(slot)), ": ",
                          DescribeUnknownShape(table.Sums(slot)));
    }
    for (int rank = 0; rank < space.costs().positions(); ++rank) {
      const int64_t bytes = BytesNeeded(space, table.Sums(slot), rank);
      if (bytes <= most) continue;
      most = bytes;
      worst_slot = slot;
      worst_rank = rank;
    }
  }
  if (worst_slot < 0) return "every micro-batch fits alone, but not with the others of its replica";
  const TokenSums sums = table.Sums(worst_slot);
  return absl::StrCat("micro-batch of ", DescribeSamples(table.samples(worst_slot)), " (",
                      DescribeShape(sums), ") does not fit on ", DescribeStages(space.costs(), worst_rank),
                      ": ", DescribeNeed(space, job, sums, worst_rank));
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
