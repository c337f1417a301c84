#include "planner/service/engine/owner_shares.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace penstock {
namespace {

// Owners whose use is known, before those that owe nothing are forgotten.
constexpr size_t kMostUses = 256;

}  // namespace

absl::Duration OwnerShares::TotalOf(const std::string& owner) const {
  const auto ended = ended_.find(owner);
  return ended == ended_.end() ? counted_ : std::max(ComputedBy(owner, ended->second), counted_);
}

absl::Duration OwnerShares::ComputedBy(const std::string& owner, absl::Duration ended) const {
  absl::Duration computed = ended;
  for (const auto& [number, task] : begun_)
    if (task.owner == owner) computed += task.computed;
  return computed;
}

uint64_t OwnerShares::Begin(const std::string& owner) {
  absl::Duration& ended = ended_[owner];
  // What it did not ask for in time is nobody's debt.
  ended += std::max(absl::ZeroDuration(), counted_ - ComputedBy(owner, ended));
  begun_[++last_task_] = {owner, absl::ZeroDuration()};
  if (ended_.size() > kMostUses) Forget();
  return last_task_;
}

void OwnerShares::End(uint64_t task, absl::Duration computed) {
  const auto one = begun_.find(task);
  ended_[one->second.owner] += computed;
  begun_.erase(one);
}

void OwnerShares::Forget() {
  std::set<std::string> busy;
  for (const auto& [number, task] : begun_) busy.insert(task.owner);
  std::erase_if(ended_, [&](const auto& one) { return one.second <= counted_ && !busy.contains(one.first); });
}

}  // namespace penstock
