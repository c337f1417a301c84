#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "worker/device/instruction_timer.h"

namespace penstock::worker {
namespace {

class HostTimer : public InstructionTimer {
 public:
  absl::Status StartIteration(const Program&) override {
    times_ = {.started_unix_ns = absl::GetCurrentTimeNanos()};
    start_ = Now();
    waited_ns_ = 0;
    return absl::OkStatus();
  }

  absl::Status Begin(const Instruction& instruction) override {
    times_.instructions.push_back({.id = instruction.id, .start_ns = SinceStart(Now())});
    return absl::OkStatus();
  }

  absl::Status End(const Instruction&) override {
    MeasuredInstruction& measured = times_.instructions.back();
    measured.start_ns += std::exchange(waited_ns_, 0);
    measured.duration_ns = SinceStart(Now()) - measured.start_ns;
    return absl::OkStatus();
  }

  void Ran(uint32_t id, const HostSpan& span) override {
    const auto measured = std::ranges::find(times_.instructions, id, &MeasuredInstruction::id);
    if (measured == times_.instructions.end()) return;
    measured->start_ns = SinceStart(span.start);
    measured->duration_ns = SinceStart(span.end) - measured->start_ns;
  }

  void Waited(int64_t ns) override { waited_ns_ += ns; }

  absl::StatusOr<IterationTimes> Finish() override {
    times_.duration_ns = SinceStart(Now());
    return std::exchange(times_, {});
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  static Time Now() { return std::chrono::steady_clock::now(); }
  int64_t SinceStart(Time time) const { return std::chrono::nanoseconds(time - start_).count(); }

  Time start_;
  int64_t waited_ns_ = 0;
  IterationTimes times_;
};

}  // namespace

std::unique_ptr<InstructionTimer> MakeHostTimer() { return std::make_unique<HostTimer>(); }

}  // namespace penstock::worker
