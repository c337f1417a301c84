#include "planner/core/feasibility/misfit.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/core/schedule/memory_fit.h"

namespace penstock::core {
namespace {

// Samples that a message lists.
constexpr size_t kMostListed = 4;

RecomputeMode MostRecompute(RecomputeMode mode) {
  return mode == RecomputeMode::kAuto ? RecomputeMode::kFull : mode;
}

std::string DescribeNeed(const CostModel& costs, const Job& job, const MicroBatchTable& table, int slot,
                         int stage) {
  return absl::StrCat("needs ", BytesAlone(costs, stage, table.memory(slot)[stage], job.recompute),
                      " bytes, limit ", job.memory_limit_bytes);
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

int64_t BytesAlone(const CostModel& costs, int stage, const StageMemory& memory, RecomputeMode mode) {
  const StageRecompute recompute = InitialRecompute(costs.stage(stage), MostRecompute(mode));
  return costs.RankStaticBytes(costs.rank_of(stage)) + PassingBytes(memory) +
         HeldBytes(costs, stage, memory, recompute);
}

std::string DescribeSample(const CostModel& costs, const Job& job, const MicroBatchTable& table, int slot,
                           int stage) {
  const TokenSums& sums = table.sums(slot);
  return absl::StrCat("batch.samples[", table.samples(slot).front(), "]: ", sums.source + sums.target,
                      " tokens do not fit on stage ", stage, ": ",
                      DescribeNeed(costs, job, table, slot, stage));
}

std::string DescribeMicroBatches(const CostModel& costs, const Job& job, const MicroBatchTable& table,
                                 absl::Span<const int> slots) {
  int worst_slot = -1;
  int worst_stage = 0;
  int64_t most = job.memory_limit_bytes;
  for (const int slot : slots) {
    if (!table.known(slot)) {
      return absl::StrCat("micro-batch of ", DescribeSamples(table.samples(slot)), ": ",
                          DescribeUnknownShape(table.sums(slot)));
    }
    for (int stage = 0; stage < costs.stages(); ++stage) {
      const int64_t bytes = BytesAlone(costs, stage, table.memory(slot)[stage], job.recompute);
      if (bytes <= most) continue;
      most = bytes;
      worst_slot = slot;
      worst_stage = stage;
    }
  }
  if (worst_slot < 0) return "every micro-batch fits alone, but not with the others of its replica";
  return absl::StrCat("micro-batch of ", DescribeSamples(table.samples(worst_slot)), " (",
                      DescribeShape(table.sums(worst_slot)), ") does not fit on stage ", worst_stage, ": ",
                      DescribeNeed(costs, job, table, worst_slot, worst_stage));
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
