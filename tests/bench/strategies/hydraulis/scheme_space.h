// The schemes that Hydraulis may choose among, with costs fitted to those of a profile.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "tests/bench/strategies/hydraulis/scheme.h"

namespace penstock::hydraulis {

struct FittedScheme {
  Scheme scheme;
  // Of its f(s), at the length where it is most wrong.
  double worst_relative_error = 0;
};

// a, b and c of the least squares of relative errors. `lengths` and `ns` have at least three values, above 0.
void FitCosts(absl::Span<const double> lengths, absl::Span<const double> ns, FittedScheme* fitted);

// For each degree of tensor ranks that the profile knows, and each pipeline of a power of two of ranks, as
// far as they divide the model and fit into `ranks` ranks and their memory: with and without recompute.
// f(s) is fitted to what passes of one sample take on the busiest stage, from 256 tokens to the most that
// fit. These are found by planning: twice as many samples as there are stages, all of one length. The
// optimizer's state is divided over all `ranks`. Possible errors: INVALID_ARGUMENT (of the job).
absl::StatusOr<std::vector<FittedScheme>> SchemesOf(const v1::JobSpec& job, int ranks, int64_t longest);

}  // namespace penstock::hydraulis
