// How large the micro-batches of a policy should be that tries sizes (policies.h), without planning the
// batch: for what planning will take (core/footprint).
//
// All work of each size is known without a schedule (work_of_size.h), and nearly all of a replica's time is
// the work of its busiest rank. What it takes beyond is scheduled, for a few micro-batches in two numbers:
// what those between the two take more tells what all take more; after it has filled, a pipeline goes on at
// an even pace. Sizes whose work alone takes longer than the best are not scheduled at all.
//
// Several sizes may be as good to within what that can tell. Planning keeps to what was foreseen, so that it
// takes as much memory as was said; the iteration is some 0.1 % longer for it at most.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

// Whether all samples are about as long as the longest.
enum class Lengths : uint8_t { kEven, kUneven };

// Samples of a micro-batch, at least 1. `tokens`: of the batch, not empty. For the policy `padding`, and for
// the others where lengths are even; `dynamic` may do otherwise. Takes a few dozen schedules of at most a few
// hundred micro-batches, and some ten nanoseconds for each sample.
int ForeseeSize(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                Lengths lengths);

}  // namespace penstock::core
