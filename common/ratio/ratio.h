// A share or a rate for reports and dashboards, where nothing at all counts as none.
#pragma once

namespace penstock {

// 0 where there is nothing to divide by.
inline double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0;
}

}  // namespace penstock
