#include "worker/comm/pending_all.h"

#include <algorithm>

namespace penstock::worker {

absl::Status PendingAll::Wait() {
  absl::Status first;
  for (const std::unique_ptr<PendingTransfer>& part : parts_) first.Update(part->Wait());
  return first;
}

std::optional<HostSpan> PendingAll::span() const {
  std::optional<HostSpan> whole;
  for (const std::unique_ptr<PendingTransfer>& part : parts_) {
    const std::optional<HostSpan> span = part->span();
    if (!span.has_value()) continue;
    if (!whole.has_value()) whole = span;
    whole = HostSpan{std::min(whole->start, span->start), std::max(whole->end, span->end)};
  }
  return whole;
}

}  // namespace penstock::worker
