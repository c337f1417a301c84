#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "worker/device/device_streams.h"
#include "worker/device/instruction_timer.h"
#include "worker/device/iteration_marks.h"

namespace penstock::worker {
namespace {

class StreamTimer : public InstructionTimer {
 public:
  explicit StreamTimer(DeviceStreams* streams) : streams_(*streams) {}

  // The device has nothing to do then: the mark is reached at once.
  absl::Status StartIteration(const Program& program) override {
    marks_ = IterationMarks(program.instructions.size());
    times_ = {.started_unix_ns = absl::GetCurrentTimeNanos()};
    return streams_.Set(marks_.start());
  }

  absl::Status Begin(const Instruction& instruction) override {
    times_.instructions.push_back({.id = instruction.id});
    return streams_.Set(marks_.BeginOf(instruction.id));
  }

  absl::Status End(const Instruction&) override { return absl::OkStatus(); }

  absl::StatusOr<IterationTimes> Finish() override {
    for (MeasuredInstruction& measured : times_.instructions) {
      const Mark begin = marks_.BeginOf(measured.id);
      PENSTOCK_ASSIGN_OR_RETURN(measured.start_ns, streams_.Between(marks_.start(), begin));
      PENSTOCK_ASSIGN_OR_RETURN(measured.duration_ns, streams_.Between(begin, marks_.EndOf(measured.id)));
      times_.duration_ns = std::max(times_.duration_ns, measured.start_ns + measured.duration_ns);
    }
    return std::exchange(times_, {});
  }

 private:
  DeviceStreams& streams_;
  IterationMarks marks_;
  IterationTimes times_;
};

}  // namespace

std::unique_ptr<InstructionTimer> MakeStreamTimer(DeviceStreams* streams) {
  return std::make_unique<StreamTimer>(streams);
}

}  // namespace penstock::worker
