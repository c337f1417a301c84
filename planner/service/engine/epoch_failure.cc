#include "planner/service/engine/epoch_failure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace penstock {

bool EpochFailure::Knows(uint32_t rank) const {
  return std::any_of(causes_.begin(), causes_.end(), [&](const Cause& cause) { return cause.rank == rank; });
}

void EpochFailure::Add(FailureKind kind, uint32_t rank, absl::string_view text) {
  if (Knows(rank)) return;
  const auto place = std::upper_bound(causes_.begin(), causes_.end(), kind,
                                      [](FailureKind kind, const Cause& cause) { return kind < cause.kind; });
  causes_.insert(place, Cause{kind, rank, std::string(text)});
}

std::string EpochFailure::Describe() const {
  std::string text;
  const size_t shown = std::min(causes_.size(), kShown);
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i == 1 ? "; then: " : "; ", causes_[i].text);
  }
  if (causes_.size() > shown) absl::StrAppend(&text, "; and ", causes_.size() - shown, " more ranks");
  return text;
}

}  // namespace penstock
