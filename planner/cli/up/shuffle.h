// A shuffle that is the same on every machine, which the distributions of the standard library do not
// promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/core/search/split_mix.h"

namespace penstock::cli {

// Fisher-Yates. The remainder's bias is below values.size() / 2^64.
template <typename Value>
void Shuffle(uint64_t seed, std::vector<Value>& values) {
  core::SplitMix random(seed);
  for (size_t last = values.size(); last > 1; --last)
    std::swap(values[last - 1], values[random.Next() % last]);
}

}  // namespace penstock::cli
