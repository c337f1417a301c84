// What agrees with the rest of a plan: times, predictions, content hash. Written by the text of the contract
// and without any code of the planner.
#pragma once

#include <cstdint>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// Gives a plan that was changed times, predictions and hash that agree with it. The others leave times, or
// times and predictions, as they are.
void Seal(v1::Plan* plan);
void SealTimes(v1::Plan* plan);
void SealHash(v1::Plan* plan);

// The most that a program holds when it runs in its own order, bytes.
int64_t PeakOf(const v1::Program& program);

}  // namespace penstock::core
