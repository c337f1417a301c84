// A few iterations of training with a profile that was just measured. Ranks that train have other threads
// beside them, hand over what passes make, and find nothing in their caches, which workers that measure do
// not; so iterations take longer than such a profile foretells. Costs that follow these iterations, part by
// part (planner/core/calibrate), foretell others, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/device_list.h"

namespace penstock::cli {

struct RehearsalOptions {
  // Whose profile is rehearsed, in its model.
  v1::ProfileFile file;
  // Ranks that train: stages of a pipeline where there are as many layers, else replicas; where a multiple of
  // `expert` of them, context ranks that divide the experts.
  uint32_t workers = 1;
  uint32_t threads = 1;
  uint32_t expert = 1;
  DeviceList device;
  uint64_t iterations = 8;
  // More of them, up to 64, until they have taken so long: a machine may be slower in one second than in
  // another.
  absl::Duration time = absl::ZeroDuration();
};

v1::Mesh MeshOfRehearsal(const RehearsalOptions& options);

// How many are to be run beside these, see RehearsalOptions.time.
uint64_t IterationsLeft(absl::Span<const v1::IterationSummary> iterations, absl::Duration time);

// By how much longer than planned the median of the iterations took, without the first one of each run.
// Possible errors: UNAVAILABLE (none was measured; or it is more than twice, or less than half: something
// else has disturbed one of both).
absl::StatusOr<double> TrainingFactorOf(absl::Span<const v1::IterationSummary> iterations);

// The profile with times of training, and how many times longer than by the one before that is
// (`training_factor`). Of a run with random tokens, in samples of 16 tokens to the longest, as many of each
// octave; where there was time for a second one, with costs that were fitted to it, multiplied by
// TrainingFactorOf a third one that is planned with these, else all multiplied by that of the first one.
// Ranks and links that were slower than others just then say nothing of other runs, and are not in it. Blocks
// until it is done; no process and no file is left. Possible errors: UNIMPLEMENTED (adapters alone learn:
// what they adapt is not there), CANCELLED (a signal), those of TrainingFactorOf, of UpRun and of writing the
// samples.
absl::StatusOr<v1::CostProfile> Rehearse(const RehearsalOptions& options);

}  // namespace penstock::cli
