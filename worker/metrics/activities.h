// What a rank does with the time of an iteration.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/program/program.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

// In the words of metrics and traces: kActivityNames.
enum class Activity : uint8_t { kForward, kBackward, kStep, kReduce, kTransferWait, kProgramWait, kOther };
inline constexpr std::array kActivityNames = {
    "forward", "backward", "optimizer_step", "reduce_gradients", "transfer_wait", "program_wait", "other"};

// By activity.
using ActivityTimes = std::array<int64_t, kActivityNames.size()>;
inline int64_t& Of(ActivityTimes& times, Activity activity) { return times[static_cast<size_t>(activity)]; }

// Whether the plan says how long it takes. Of a transfer and of a reduction it says so too, but what a rank
// sees of them is how long it waits.
inline bool IsPlanned(Activity activity) { return activity <= Activity::kStep; }

// Nanoseconds of an iteration that has run; its wait for the program is not part of it. Of a reduction: how
// long no pass of the rank ran beside it.
ActivityTimes MeasuredActivities(const Program& program, const IterationResult& result);

// What the plan expects.
ActivityTimes PlannedActivities(const Program& program);

}  // namespace penstock::worker
