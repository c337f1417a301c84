#include "worker/runtime/parameter_rounds.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

constexpr int64_t kAllOfStage = std::numeric_limits<int64_t>::max();

}  // namespace

ParameterRounds::ParameterRounds(const ExecutorParts& parts, const Program& program)
    : parts_(parts), program_(program) {
  if (parts.resharding == nullptr) return;
  for (size_t count = 1; count <= parts.resharding->rounds(); ++count) {
    for (const auto& [stage, begin] : parts.resharding->BeginsOf(parts.resharding->rounds() - count))
      rounds_of_[stage].push_back({.begin = begin, .rounds = count});
  }
}

ParameterRounds::~ParameterRounds() {
  if (works_ == 0 || there_ == parts_.resharding->rounds()) return;
  parts_.communicator->Abort("the iteration has failed");
  parts_.order->AwaitBeside().IgnoreError();
}

size_t ParameterRounds::FirstRounds() const {
  const auto first = std::ranges::find(program_.instructions, Op::kForward, &Instruction::op);
  if (first == program_.instructions.end()) return parts_.resharding->rounds();
  return RoundsFor(first->stage, /*end=*/1);
}

absl::Status ParameterRounds::Begin(size_t works) {
  Resharding* const resharding = parts_.resharding;
  while (works_ < works) {
    const size_t count = ++works_;
    PENSTOCK_RETURN_IF_ERROR(parts_.order->Beside([resharding, count] {
      return count <= resharding->rounds() ? resharding->BringRounds(count) : resharding->BringParameters();
    }));
  }
  return absl::OkStatus();
}

absl::Status ParameterRounds::BringFirst() {
  const size_t rounds = FirstRounds();
  PENSTOCK_RETURN_IF_ERROR(Begin(rounds + 1));
  return Await(rounds);
}

absl::Status ParameterRounds::BringOthers() { return Begin(parts_.resharding->rounds() + 1); }

size_t ParameterRounds::RoundsFor(uint32_t stage, int64_t end) const {
  // What stages share is in the first round.
  size_t rounds = 1;
  const auto of_stage = rounds_of_.find(stage);
  if (of_stage == rounds_of_.end()) return rounds;
  for (const Upwards& upwards : of_stage->second)
    if (upwards.begin < end) rounds = upwards.rounds;
  return rounds;
}

// A round is there when the next one has been begun.
absl::Status ParameterRounds::Await(size_t rounds) {
  if (rounds <= there_ || !status_.ok()) return status_;
  if (works_ <= rounds) return absl::InternalError("a pass comes before the RESHARD of its parameters");
  status_ = parts_.order->AwaitBeside(rounds + 1);
  if (status_.ok()) there_ = rounds;
  return status_;
}

ParametersNeeded ParameterRounds::For(uint32_t stage) {
  if (parts_.resharding == nullptr || RoundsFor(stage, kAllOfStage) <= there_) return {};
  return [this, stage](int64_t end) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    Await(RoundsFor(stage, end)).IgnoreError();
    parts_.timer->Waited(std::chrono::nanoseconds(Clock::now() - start).count());
  };
}

absl::Status ParameterRounds::AwaitAllOf(uint32_t stage) {
  return parts_.resharding == nullptr ? absl::OkStatus() : Await(RoundsFor(stage, kAllOfStage));
}

}  // namespace penstock::worker
