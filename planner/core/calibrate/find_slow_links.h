// Links over which bytes travel slower than over others of their kind.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/calibrate/observed_iteration.h"
#include "planner/core/cost/profile.h"

namespace penstock::core {

// What transfers over one link, or one kind of link, take of what is expected: a low quantile, for one that
// was measured also waited for its other end to come. 1 without any.
double TransferRatio(std::vector<double> ratios);

// Links that are clearly slower than the median link of their kind (clearly_slow_link.h), each direction for
// itself. Ascending. `before`: links that were slow; they stay until they are clearly not, and as they were
// where too little went over them to tell: plans give a slow link less to do. Of a kind of which there is one
// link nothing is known.
//
// Links of a ring are measured by the ring, which is as slow as its slowest step: where it is clearly slower
// than the median ring of its kind, all steps of its slowest kind of link are named.
std::vector<SlowLink> FindSlowLinks(absl::Span<const MeasuredTransfer> transfers,
                                    absl::Span<const MeasuredRing> rings, absl::Span<const SlowLink> before);

// By how much a link differs at most; 0.1: by a tenth.
double LargestLinkChange(absl::Span<const SlowLink> before, absl::Span<const SlowLink> after);

}  // namespace penstock::core
