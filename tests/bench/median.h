// The middle one of several measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace penstock::bench {

// `values`: at least one.
inline double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace penstock::bench
