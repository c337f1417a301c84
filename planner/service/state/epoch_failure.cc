#include "planner/service/state/epoch_failure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace penstock {

bool EpochFailure::Knows(uint32_t rank) const {
  return std::any_of(causes_.begin(), causes_.end(),
                     [&](const store::v1::WorkerFailed& cause) { return cause.rank() == rank; });
}

void EpochFailure::Add(const store::v1::WorkerFailed& cause) {
  if (Knows(cause.rank())) return;
  const auto place = std::upper_bound(
      causes_.begin(), causes_.end(), cause.kind(),
      [](store::v1::FailureKind kind, const store::v1::WorkerFailed& other) { return kind < other.kind(); });
  causes_.insert(place, cause);
}

std::string EpochFailure::Describe() const {
  std::string text;
  const size_t shown = std::min(causes_.size(), kShown);
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i == 1 ? "; then: " : "; ", causes_[i].what());
  }
  if (causes_.size() > shown) absl::StrAppend(&text, "; and ", causes_.size() - shown, " more ranks");
  return text;
}

}  // namespace penstock
