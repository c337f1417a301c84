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
    start_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }

  absl::Status Begin(const Instruction& instruction) override {
    times_.instructions.push_back({.id = instruction.id, .start_ns = SinceStart()});
    return absl::OkStatus();
  }

  absl::Status End(const Instruction&) override {
    MeasuredInstruction& measured = times_.instructions.back();
    measured.duration_ns = SinceStart() - measured.start_ns;
    return absl::OkStatus();
  }

  absl::StatusOr<IterationTimes> Finish() override {
    times_.duration_ns = SinceStart();
    return std::exchange(times_, {});
  }

 private:
  int64_t SinceStart() const {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
  }

  std::chrono::steady_clock::time_point start_;
  IterationTimes times_;
};

}  // namespace

std::unique_ptr<InstructionTimer> MakeHostTimer() { return std::make_unique<HostTimer>(); }

}  // namespace penstock::worker
