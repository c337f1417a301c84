#include "worker/runtime/gradient_rounds.h"

#include <algorithm>
#include <limits>

#include "common/status/status_macros.h"
#include "worker/runtime/makes_gradients.h"

namespace penstock::worker {

GradientRounds::GradientRounds(const ExecutorParts& parts, const Program& program) : parts_(parts) {
  if (parts.resharding == nullptr) return;
  for (const Instruction& instruction : program.instructions) {
    if (!MakesGradients(instruction.op)) continue;
    last_[instruction.stage] = instruction.id;
    made_[instruction.stage] = std::numeric_limits<int64_t>::max();
  }
}

GradientRounds::~GradientRounds() {
  if (begun_ == 0) return;
  parts_.communicator->Abort("the iteration has failed");
  parts_.order->AwaitBeside().IgnoreError();
}

GradientsReady GradientRounds::During(const Instruction& pass) {
  const auto last = last_.find(pass.stage);
  if (last == last_.end() || last->second != pass.id) return {};
  return [this, &pass](int64_t begin) { Made(pass, begin); };
}

bool GradientRounds::IsMade(size_t round) const {
  const std::map<uint32_t, int64_t>& begins = parts_.resharding->BeginsOf(round);
  return std::ranges::all_of(begins, [&](const auto& begin) {
    const auto made = made_.find(begin.first);
    return made != made_.end() && made->second <= begin.second;
  });
}

// The last round has what stages share, and what comes before the lowest layer: it is taken behind all.
void GradientRounds::Made(const Instruction& pass, int64_t begin) {
  made_[pass.stage] = begin;
  for (const auto& [stage, id] : last_)
    if (id < pass.id) made_[stage] = 0;
  size_t end = begun_;
  while (end + 1 < parts_.resharding->rounds() && IsMade(end)) ++end;
  if (end == begun_ || !status_.ok()) return;
  begun_ = end;
  status_ =
      parts_.order->Beside([resharding = parts_.resharding, end] { return resharding->TakeRounds(end); });
}

absl::Status GradientRounds::Take() {
  PENSTOCK_RETURN_IF_ERROR(parts_.order->AwaitBeside());
  PENSTOCK_RETURN_IF_ERROR(parts_.resharding->TakeGradients());
  begun_ = 0;
  return absl::OkStatus();
}

}  // namespace penstock::worker
