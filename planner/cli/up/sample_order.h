// The order in which training sees a dataset: a fresh shuffle of all samples each epoch.
//
// A pure function of (seed, position), so that a feeder can start at any iteration and submit the same
// batches.
//
//   SampleOrder order(/*samples=*/1000, /*seed=*/7);
//   uint64_t sample = order.At(iteration * global_batch + i);
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::cli {

class SampleOrder {
 public:
  // `samples` > 0.
  SampleOrder(uint64_t samples, uint64_t seed);

  // The sample at `position` of the endless walk; epoch = position / samples. Keeps one epoch's permutation,
  // so calls should ascend.
  uint64_t At(uint64_t position);

 private:
  void Shuffle(uint64_t epoch);

  uint64_t seed_;
  uint64_t epoch_ = 0;
  std::vector<uint64_t> permutation_;
};

}  // namespace penstock::cli
