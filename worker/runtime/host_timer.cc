#include <chrono>
#include <utility>

#include "worker/runtime/instruction_timer.h"

namespace penstock::worker {
namespace {

class HostTimer : public InstructionTimer {
 public:
  void StartIteration() override {
    measured_.clear();
    start_ = std::chrono::steady_clock::now();
  }

  void Begin(const Instruction& instruction) override {
    measured_.push_back({.id = instruction.id, .start_ns = SinceStart()});
  }

  void End(const Instruction&) override {
    measured_.back().duration_ns = SinceStart() - measured_.back().start_ns;
  }

  absl::StatusOr<std::vector<MeasuredInstruction>> Finish() override { return std::exchange(measured_, {}); }

 private:
  int64_t SinceStart() const {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
  }

  std::chrono::steady_clock::time_point start_;
  std::vector<MeasuredInstruction> measured_;
};

}  // namespace

std::unique_ptr<InstructionTimer> MakeHostTimer() { return std::make_unique<HostTimer>(); }

}  // namespace penstock::worker
