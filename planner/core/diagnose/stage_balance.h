// What whole layers that are moved between stages can bring.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace penstock::core {

// By stage: what its passes would take with the layers divided best, over what they take. `times`: what they
// take, by stage, in any unit. `layers`: how many layers each stage has, at least one, all alike. What a
// stage takes beyond the layers' time of the stage whose layers are quickest is of an embedding or a head,
// and stays.
std::vector<double> BestStageFactors(absl::Span<const double> times, absl::Span<const int32_t> layers);

}  // namespace penstock::core
