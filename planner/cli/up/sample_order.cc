#include "planner/cli/up/sample_order.h"

#include <numeric>

#include "planner/cli/up/shuffle.h"

namespace penstock::cli {
SampleOrder::SampleOrder(uint64_t samples, uint64_t seed) : seed_(seed), permutation_(samples) { Shuffle(0); }

uint64_t SampleOrder::At(uint64_t position) {
  const uint64_t epoch = position / permutation_.size();
  if (epoch != epoch_) Shuffle(epoch);
  return permutation_[position % permutation_.size()];
}

void SampleOrder::Shuffle(uint64_t epoch) {
  epoch_ = epoch;
  std::iota(permutation_.begin(), permutation_.end(), 0);
  cli::Shuffle(seed_ ^ (epoch * 0xd1342543de82ef95ULL), permutation_);
}

}  // namespace penstock::cli
