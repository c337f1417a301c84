#include "planner/cli/up/sample_order.h"

#include <numeric>
#include <utility>

namespace penstock::cli {
namespace {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): the same numbers
// on every machine, which the distributions of the standard library do not promise.
uint64_t NextRandom(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

SampleOrder::SampleOrder(uint64_t samples, uint64_t seed) : seed_(seed), permutation_(samples) { Shuffle(0); }

uint64_t SampleOrder::At(uint64_t position) {
  const uint64_t epoch = position / permutation_.size();
  if (epoch != epoch_) Shuffle(epoch);
  return permutation_[position % permutation_.size()];
}

// Fisher-Yates. The remainder's bias is below samples / 2^64.
void SampleOrder::Shuffle(uint64_t epoch) {
  epoch_ = epoch;
  std::iota(permutation_.begin(), permutation_.end(), 0);
  uint64_t state = seed_ ^ (epoch * 0xd1342543de82ef95ULL);
  for (uint64_t last = permutation_.size(); last > 1; --last) {
    std::swap(permutation_[last - 1], permutation_[NextRandom(state) % last]);
  }
}

}  // namespace penstock::cli
