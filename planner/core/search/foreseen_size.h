// How large the micro-batches are that a policy will choose which tries sizes (policies.h), without planning
// the batch: for what planning will take (core/footprint).
//
// A few micro-batches of each size are scheduled as the policy would schedule all, in two numbers, and what
// those between the two take tells what all take: after it has filled, a pipeline goes on at an even pace.
// The policy's choice is one of the sizes that come out close to the best; the smallest of them is told,
// which takes the most memory.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

// Whether all samples are about as long as the longest.
enum class Lengths : uint8_t { kEven, kUneven };

// Samples of a micro-batch, at least 1. `tokens`: of the batch, not empty. For the policy `padding`, and for
// the others that do not search where lengths are even. Takes some hundred schedules of a few dozen
// micro-batches, or of a few hundred where lengths are uneven, however large the batch is.
int ForeseeSize(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                Lengths lengths);

}  // namespace penstock::core
