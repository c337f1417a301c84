// The value in the middle of several that do not count alike.
#pragma once

#include <algorithm>
#include <vector>

namespace penstock {

struct WeightedValue {
  double value = 0;
  double weight = 0;
};

// The value that half of the weight is not above; 0 without any.
inline double WeightedMedian(std::vector<WeightedValue> values) {
  std::sort(values.begin(), values.end(),
            [](const WeightedValue& a, const WeightedValue& b) { return a.value < b.value; });
  double all = 0;
  for (const WeightedValue& value : values) all += value.weight;
  double sum = 0;
  for (const WeightedValue& value : values) {
    sum += value.weight;
    if (2 * sum >= all) return value.value;
  }
  return 0;
}

}  // namespace penstock
