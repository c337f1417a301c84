// Micro-batches of consecutive samples of an order, padded or packed: the good partitions of
// contiguous_partition.h as groups of samples.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/partition/contiguous_partition.h"
#include "planner/core/partition/groups.h"
#include "planner/core/partition/window_sums.h"

namespace penstock::core {

// Best objective first. `time(sums)`: of a micro-batch with these TokenSums; infinite outside of the profile.
// `fits(sums)`: whether one of more than a sample may be made. `layout`: padded or packed.
template <typename Time, typename Fits>
std::vector<Groups> ContiguousGroups(absl::Span<const uint32_t> order, absl::Span<const SampleTokens> tokens,
                                     Layout layout, PartitionSearch search, const Time& time,
                                     const Fits& fits) {
  const int samples = static_cast<int>(order.size());
  const PackedWindows packed(order, tokens);
  // No partition takes less than all samples together without padding.
  const double least = time(packed.all());
  search.least_sum = std::isfinite(least) ? least : 0;
  const auto cost = [&](const TokenSums& sums) {
    return sums.rows == 1 || fits(sums) ? time(sums) : std::numeric_limits<double>::infinity();
  };
  std::vector<ContiguousPartition> partitions;
  if (layout == Layout::kPacked) {
    partitions =
        SearchPartitions(samples, search, [&](int first, int last) { return cost(packed(first, last)); });
  } else {
    PaddedWindows padded(order, tokens);
    partitions =
        SearchPartitions(samples, search, [&](int first, int last) { return cost(padded(first, last)); });
  }
  std::vector<Groups> result;
  result.reserve(partitions.size());
  for (const ContiguousPartition& partition : partitions) result.push_back(CutOrder(order, partition.ends));
  return result;
}

}  // namespace penstock::core
