// Foretells how many micro-batches the search's starts have that pack samples to a cap (search/starts.cc).
#pragma once

#include "absl/types/span.h"

namespace penstock::core {

// Of all these starts together, at most. `sizes`: of the samples, in the batch's order, in any unit.
double PackedStartMicroBatches(absl::Span<const double> sizes);

}  // namespace penstock::core
