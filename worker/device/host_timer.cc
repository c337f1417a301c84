#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "worker/device/instruction_timer.h"
#include "worker/device/thread_clock.h"
#include "worker/program/passes.h"

namespace penstock::worker {
namespace {

// A pass that exchanges nothing inside.
bool IsLone(const Instruction& instruction) { return IsPass(instruction.op) && !instruction.joint; }

class HostTimer : public InstructionTimer {
 public:
  explicit HostTimer(bool computes_alone) : computes_alone_(computes_alone) {}

  absl::Status StartIteration(const Program&) override {
    times_ = {.started_unix_ns = absl::GetCurrentTimeNanos()};
    start_ = Now();
    waited_ns_ = 0;
    exchanged_ns_.reset();
    return absl::OkStatus();
  }

  absl::Status Begin(const Instruction& instruction) override {
    if (computes_alone_ && IsLone(instruction)) core_ns_ = ThreadCoreNs();
    times_.instructions.push_back({.id = instruction.id, .start_ns = SinceStart(Now())});
    return absl::OkStatus();
  }

  absl::Status End(const Instruction& instruction) override {
    MeasuredInstruction& measured = times_.instructions.back();
    measured.start_ns += std::exchange(waited_ns_, 0);
    measured.duration_ns = SinceStart(Now()) - measured.start_ns;
    if (exchanged_ns_.has_value()) measured.exchange_ns = std::min(*exchanged_ns_, measured.duration_ns);
    exchanged_ns_.reset();
    if (computes_alone_ && IsLone(instruction)) {
      times_.lone_pass_ns += measured.duration_ns;
      times_.lone_pass_core_ns += std::min(ThreadCoreNs() - core_ns_, measured.duration_ns);
    }
    return absl::OkStatus();
  }

  void Ran(uint32_t id, const HostSpan& span) override {
    const auto measured = std::ranges::find(times_.instructions, id, &MeasuredInstruction::id);
    if (measured == times_.instructions.end()) return;
    measured->start_ns = SinceStart(span.start);
    measured->duration_ns = SinceStart(span.end) - measured->start_ns;
  }

  void Waited(int64_t ns) override { waited_ns_ += ns; }
  void Exchanged(int64_t ns) override { exchanged_ns_ = ns; }

  absl::StatusOr<IterationTimes> Finish() override {
    times_.duration_ns = SinceStart(Now());
    return std::exchange(times_, {});
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  static Time Now() { return std::chrono::steady_clock::now(); }
  int64_t SinceStart(Time time) const { return std::chrono::nanoseconds(time - start_).count(); }

  const bool computes_alone_;
  Time start_;
  // Of the pass that runs: how long the thread had had a core when it began.
  int64_t core_ns_ = 0;
  int64_t waited_ns_ = 0;
  // Of a joint pass.
  std::optional<int64_t> exchanged_ns_;
  IterationTimes times_;
};

}  // namespace

std::unique_ptr<InstructionTimer> MakeHostTimer(bool computes_alone) {
  return std::make_unique<HostTimer>(computes_alone);
}

}  // namespace penstock::worker
