#include "worker/metrics/activities.h"

#include <algorithm>
#include <vector>

namespace penstock::worker {
namespace {

Activity ActivityOf(Op op) {
  switch (op) {
    case Op::kForward:
      return Activity::kForward;
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return Activity::kBackward;
    case Op::kReduceGradients:
    case Op::kReshard:
      return Activity::kReduce;
    case Op::kOptimizerStep:
      return Activity::kStep;
    case Op::kWait:
      return Activity::kTransferWait;
    case Op::kLoad:
    case Op::kSend:
    case Op::kRecv:
    case Op::kFree:
      return Activity::kOther;
  }
  return Activity::kOther;
}

// Of a reduction: how long no pass of the rank ran beside it.
int64_t ExposedNs(const MeasuredInstruction& reduction, const Program& program,
                  const std::vector<MeasuredInstruction>& all) {
  const int64_t end_ns = reduction.start_ns + reduction.duration_ns;
  int64_t exposed_ns = reduction.duration_ns;
  for (const MeasuredInstruction& other : all) {
    if (!IsPlanned(ActivityOf(program.instructions.at(other.id).op))) continue;
    const int64_t first_ns = std::max(reduction.start_ns, other.start_ns);
    const int64_t last_ns = std::min(end_ns, other.start_ns + other.duration_ns);
    exposed_ns -= std::max<int64_t>(0, last_ns - first_ns);
  }
  return std::max<int64_t>(0, exposed_ns);
}

}  // namespace

ActivityTimes MeasuredActivities(const Program& program, const IterationResult& result) {
  ActivityTimes times = {};
  int64_t known_ns = 0;
  for (const MeasuredInstruction& instruction : result.instructions) {
    const Activity activity = ActivityOf(program.instructions.at(instruction.id).op);
    const int64_t own_ns = activity == Activity::kReduce
                               ? ExposedNs(instruction, program, result.instructions)
                               : instruction.duration_ns;
    Of(times, activity) += own_ns;
    known_ns += own_ns;
  }
  // Streams run side by side on a GPU, so that the sum may be longer than the iteration.
  Of(times, Activity::kOther) += std::max<int64_t>(0, result.duration_ns - known_ns);
  return times;
}

ActivityTimes PlannedActivities(const Program& program) {
  ActivityTimes times = {};
  for (const Instruction& instruction : program.instructions)
    Of(times, ActivityOf(instruction.op)) += instruction.expected_duration_ns;
  return times;
}

}  // namespace penstock::worker
