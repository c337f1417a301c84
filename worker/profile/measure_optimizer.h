// What the optimizer step of a rank takes: a part that is there however few parameters the rank has, and one
// for each byte of them.
#pragma once

#include "absl/status/statusor.h"
#include "worker/profile/measured_profile.h"
#include "worker/profile/stage_run.h"

namespace penstock::worker {

// A step over so many bytes of parameters.
struct StepPoint {
  double bytes = 0;
  double ns = 0;
};

// The line through two steps. Where the machine was so unsteady that it would fall, or begin below 0, the
// line through the larger one and the origin. `small.bytes` < `large.bytes`.
MeasuredStep StepThrough(const StepPoint& small, const StepPoint& large);

// Of the run's stages: each by itself, in turn, so that caches hold no more of it than in training, and all
// of them together; of a single one its quarters and the whole. The norm, the update and the zeroing of
// gradients, as a worker does them. Possible errors: RESOURCE_EXHAUSTED (memory), INTERNAL.
absl::StatusOr<MeasuredStep> MeasureOptimizer(const StageRun& run);

}  // namespace penstock::worker
