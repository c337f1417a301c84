#include "planner/service/engine/owner_shares.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace penstock {
namespace {

// Owners whose use is known, before those that owe nothing are forgotten.
constexpr size_t kMostUses = 256;
// How much of the longest task's time counts after one more.
constexpr double kFade = 0.9;

}  // namespace

absl::Duration OwnerShares::TotalOf(const std::string& owner) const {
  absl::Duration total = SpentBy(owner);
  for (const auto& [number, task] : running_)
    if (task.owner == owner) total += std::max(absl::ZeroDuration(), task.expected - task.computed);
  return total;
}

absl::Duration OwnerShares::SpentBy(const std::string& owner) const {
  const auto use = uses_.find(owner);
  if (use == uses_.end()) return counted_;
  return std::max(ComputedBy(owner, use->second), counted_);
}

absl::Duration OwnerShares::ComputedBy(const std::string& owner, const Use& use) const {
  absl::Duration computed = use.ended;
  for (const auto& [number, task] : running_)
    if (task.owner == owner) computed += task.computed;
  return computed;
}

absl::Duration OwnerShares::LastOf(const std::string& owner) const {
  const auto use = uses_.find(owner);
  return use == uses_.end() ? absl::ZeroDuration() : use->second.last;
}

bool OwnerShares::IsShort(const std::string& owner) const {
  const auto use = uses_.find(owner);
  return use != uses_.end() && use->second.longest > absl::ZeroDuration() && use->second.longest <= kLong;
}

uint64_t OwnerShares::Begin(const std::string& owner, absl::Duration least) {
  counted_ = std::max(counted_, least);
  Use& use = uses_[owner];
  // What it did not ask for in time is nobody's debt.
  use.ended += std::max(absl::ZeroDuration(), counted_ - ComputedBy(owner, use));
  running_[++last_task_] = {owner, absl::ZeroDuration(), use.last};
  if (uses_.size() > kMostUses) Forget();
  return last_task_;
}

void OwnerShares::End(uint64_t task, absl::Duration computed) {
  const auto ended = running_.find(task);
  Use& use = uses_[ended->second.owner];
  use.last = computed;
  use.longest = std::max(computed, kFade * use.longest);
  use.ended += computed;
  running_.erase(ended);
}

void OwnerShares::Forget() {
  std::set<std::string> busy;
  for (const auto& [number, task] : running_) busy.insert(task.owner);
  std::erase_if(uses_,
                [&](const auto& one) { return one.second.ended <= counted_ && !busy.contains(one.first); });
}

}  // namespace penstock
