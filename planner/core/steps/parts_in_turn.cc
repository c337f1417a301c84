#include "planner/core/steps/parts_in_turn.h"

#include <algorithm>
#include <utility>

namespace penstock::core {

void PartsInTurn::RunLayer(absl::Span<const LayerSteps> of_parts) {
  for (int i = 0; i < of_parts.front().count; ++i) {
    for (size_t p = 0; p < parts_.size(); ++p) {
      const ExchangeStep& step = of_parts[p].exchanges[static_cast<size_t>(i)];
      Part& part = parts_[p];
      const int64_t before = std::exchange(part.owed, 0) + step.before;
      now_ = std::max(now_, part.arrived) + before;
      line_ = std::max(line_, now_) + step.ns;
      part.arrived = line_;
      now_ += step.after;
      computed_ += before + step.after;
    }
  }
  for (size_t p = 0; p < parts_.size(); ++p) parts_[p].owed += of_parts[p].rest;
}

std::vector<int64_t> PartsInTurn::Offsets() const {
  std::vector<int64_t> offsets = {line_ - now_};
  for (const Part& part : parts_) {
    offsets.push_back(part.arrived - now_);
    offsets.push_back(part.owed);
  }
  return offsets;
}

void PartsInTurn::Skip(int64_t ns) {
  now_ += ns;
  line_ += ns;
  for (Part& part : parts_) part.arrived += ns;
}

void PartsInTurn::Run(int64_t layers, absl::Span<const LayerSteps> of_parts) {
  if (layers == 0) return;
  if (of_parts.front().count == 0) {
    for (size_t p = 0; p < parts_.size(); ++p) parts_[p].owed += layers * of_parts[p].rest;
    return;
  }
  std::vector<int64_t> offsets = Offsets();
  for (int64_t left = layers; left > 0; --left) {
    const int64_t began = now_;
    const int64_t computed = computed_;
    RunLayer(of_parts);
    std::vector<int64_t> next = Offsets();
    if (next == offsets) {
      // All that follow are like this one.
      Skip((left - 1) * (now_ - began));
      computed_ += (left - 1) * (computed_ - computed);
      return;
    }
    offsets = std::move(next);
  }
}

int64_t PartsInTurn::End() {
  for (Part& part : parts_) {
    const int64_t rest = std::exchange(part.owed, 0);
    now_ = std::max(now_, part.arrived) + rest;
    computed_ += rest;
  }
  return now_ - computed_;
}

}  // namespace penstock::core
