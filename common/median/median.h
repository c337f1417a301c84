// The value in the middle of several. Of an even number of values there are two: which of them is asked for,
// because their mean may be a value that nobody measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace penstock {

namespace median_internal {

template <typename Value>
Value ValueAt(std::vector<Value>& values, size_t place) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace median_internal

// 0 where there are none. Changes the order of the values.
template <typename Value>
Value LowerMedian(std::vector<Value>& values) {
  return values.empty() ? Value{0} : median_internal::ValueAt(values, (values.size() - 1) / 2);
}

// 0 where there are none. Changes the order of the values.
template <typename Value>
Value UpperMedian(std::vector<Value>& values) {
  return values.empty() ? Value{0} : median_internal::ValueAt(values, values.size() / 2);
}

}  // namespace penstock
