// Costs that follow what is measured: a profile that would have foretold the last iterations.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const auto revised, core::Calibrate(*planner, in_effect, iterations));
//   if (revised.has_value()) PlanLaterIterationsWith(revised->profile);
//
// Pure: the same iterations give the same profile, bit for bit. Three steps: the costs of passes are fitted
// to every pass that was measured (fit_costs.h), with ranks that are slower than others told apart
// (find_slow_ranks.h), transfers and optimizer steps to theirs, with links that are slower than others of
// their kind told apart (find_slow_links.h); then the plans are run again with these costs and as much noise
// as was measured (replay/), and the part of the iterations' time that is still missing is spread over all
// computing. Replaying a plan's own graph with measured times is dPRO's way
// (Hu et al., MLSys 2022, section 3); what is fitted here are costs, so that plans of other lengths are
// foretold too.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/cost_profile.pb.h"
#include "planner/core/calibrate/calibration.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/calibrate/observed_iteration.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/planner.h"

namespace penstock::core {

// `planner`: of the job with the profile that it was registered with; factors are always of that one, with
// the loads of expert ranks that were measured, or those of `in_effect`.
// `in_effect`: the last revision of it, or the same. Nothing: the costs in effect foretell the iterations as
// well, to half a per cent, and ranks and links are as fast, and routers as even, as they say. The profile's
// version is one above that of `in_effect`; where that was fitted, too, no cost is further from it than a
// factor of two (bounded_step.h). Possible errors: INVALID_ARGUMENT (an iteration that is not of
// this job), CANCELLED.
absl::StatusOr<std::optional<Calibration>> Calibrate(const Planner& planner, const v1::CostProfile& in_effect,
                                                     absl::Span<const ObservedIteration> iterations,
                                                     StopToken stop = {});

// The same of single passes, whoever ran them; errors are those of passes.
// Possible errors: INVALID_ARGUMENT (no pass is inside of the profile).
absl::StatusOr<Calibration> CalibratePasses(const Planner& planner, absl::Span<const MeasuredPass> passes);

}  // namespace penstock::core
