// Which task each sample of a mixture's global batches comes from: weights are shares of samples.
//
// A batch of B samples has B x weight of each task, rounded up or down, and the right number over many
// batches: B points that lie 1/B apart are put on a line that the tasks divide by their weights (systematic
// sampling; Madow, "On the theory of systematic sampling", 1949), moved by a golden section from batch to
// batch, so that a rare task is never long in coming. All of it in integers: the same on every machine.
//
//   const MixtureOrder order({0.7, 0.3}, /*batch=*/64, /*seed=*/7);
//   order.TasksOf(12);        // 0, 1, 0, 0, ...: 44 or 45 times 0
//   order.TakenBefore(12);    // samples of each task in batches 0 to 11
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::cli {

class MixtureOrder {
 public:
  // `weights`: 0 or more, one above 0. `batch` > 0.
  MixtureOrder(const std::vector<double>& weights, uint32_t batch, uint64_t seed);

  // The task of each sample of an iteration's batch, shuffled.
  std::vector<uint32_t> TasksOf(uint64_t iteration) const;

  // Of each task, the samples in all batches before that of `iteration`, which is below 2^48: as quick for a
  // late iteration as for an early one.
  std::vector<uint64_t> TakenBefore(uint64_t iteration) const;

 private:
  // Points of a batch that lie before the end of a task: so many, and one more where the batch's offset is
  // below `offset`, of 2^64.
  struct End {
    uint64_t points = 0;
    uint64_t offset = 0;
  };

  // Of a batch's first point on a line that is as long as points are apart, of 2^64.
  uint64_t OffsetOf(uint64_t iteration) const;

  std::vector<End> ends_;
  const uint64_t seed_;
  const uint64_t first_offset_;
};

}  // namespace penstock::cli
