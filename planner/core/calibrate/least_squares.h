// Factors of parts that add up to what was measured, with doubt about every measurement and about every
// factor.
#pragma once

#include <vector>

#include "absl/types/span.h"

namespace penstock::core {

// What was foreseen for one measurement, part by part, and what was measured; in the same unit.
struct FitRow {
  std::vector<double> parts;
  double measured = 0;
};

// The factors by which parts have to be multiplied, at least 0.02 and at most 50 times the usual ratio of
// what was measured to what was foreseen. Rows count by what they foresee, by their relative error, and less
// where they are far off (Huber 1964, "Robust Estimation of a Location Parameter", by iterated weights). A
// factor that the rows say little about stays near that usual ratio (ridge). All 1 without rows. Rows have
// `columns` parts each and foresee more than 0.
std::vector<double> FitFactors(absl::Span<const FitRow> rows, size_t columns);

}  // namespace penstock::core
