#include "planner/service/journal/change_queue.h"

#include <algorithm>

namespace penstock {
namespace {

bool IsRegistration(const JobChange& change) {
  return !change.remove && change.first_sequence == 1 && !change.events.empty();
}

}  // namespace

void ChangeQueue::Push(const std::string& owner, QueuedChange change) {
  const uint64_t number = ++last_number_;
  if (change.change.remove) removals_[change.change.job_id].insert(number);
  Owner& payer = owners_[owner];
  Line& line = payer.lines[change.change.job];
  if (line.changes.empty()) {
    if (payer.waiting++ == 0) {
      payer.had = std::max(payer.had, clock_);
      ++waiting_;
    }
    line.had = std::max(line.had, payer.clock);
  }
  line.changes.push_back({std::move(change), number});
  ++size_;
}

bool ChangeQueue::MustWait(const Numbered& change) const {
  if (!IsRegistration(change.queued.change)) return false;
  const auto removals = removals_.find(change.queued.change.job_id);
  return removals != removals_.end() && *removals->second.begin() < change.number;
}

ChangeQueue::Place ChangeQueue::NextOf(Owner& owner) {
  Place next;
  for (auto& [job, line] : owner.lines) {
    if (line.changes.empty() || MustWait(line.changes.front())) continue;
    const Numbered& first = line.changes.front();
    const std::pair<double, uint64_t> turn(line.had + static_cast<double>(first.queued.bytes), first.number);
    if (next.line == nullptr || turn < next.turn) next = {&owner, &line, turn};
  }
  return next;
}

ChangeQueue::Place ChangeQueue::Next() {
  Place next;
  for (auto& [name, owner] : owners_) {
    Place place = NextOf(owner);
    if (place.line == nullptr) continue;
    place.turn.first = owner.had + static_cast<double>(place.line->changes.front().queued.bytes);
    if (next.line == nullptr || place.turn < next.turn) next = place;
  }
  return next;
}

QueuedChange ChangeQueue::Pop(const Place& place) {
  auto& [owner, line, turn] = place;
  Numbered change = std::move(line->changes.front());
  line->changes.pop_front();
  const auto bytes = static_cast<double>(change.queued.bytes);
  line->had += bytes;
  owner->had += bytes;
  owner->clock += bytes / static_cast<double>(owner->waiting);
  clock_ += bytes / static_cast<double>(waiting_);
  if (line->changes.empty() && --owner->waiting == 0) --waiting_;
  --size_;
  if (change.queued.change.remove) {
    const auto removals = removals_.find(change.queued.change.job_id);
    removals->second.erase(change.number);
    if (removals->second.empty()) removals_.erase(removals);
  }
  return std::move(change.queued);
}

void ChangeQueue::Forget() {
  if (size_ == 0) clock_ = 0;
  for (auto owner = owners_.begin(); owner != owners_.end();) {
    Owner& state = owner->second;
    if (state.waiting == 0) state.clock = 0;
    std::erase_if(state.lines, [&](const auto& line) {
      return line.second.changes.empty() && (state.waiting == 0 || line.second.had <= state.clock);
    });
    const bool owes = state.waiting > 0 || (size_ > 0 && state.had > clock_);
    owner = owes ? std::next(owner) : owners_.erase(owner);
  }
}

std::vector<QueuedChange> ChangeQueue::Take(size_t most_bytes) {
  std::vector<QueuedChange> taken;
  size_t bytes = 0;
  // Of all that wait the first waits for no removal, which would have come before it: so there is a next one.
  while (size_ > 0) {
    const Place next = Next();
    bytes += next.line->changes.front().queued.bytes;
    if (!taken.empty() && bytes > most_bytes) break;
    taken.push_back(Pop(next));
  }
  Forget();
  return taken;
}

absl::Time ChangeQueue::oldest() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const auto& [name, owner] : owners_) {
    for (const auto& [job, line] : owner.lines)
      if (!line.changes.empty()) oldest = std::min(oldest, line.changes.front().queued.appended);
  }
  return oldest;
}

}  // namespace penstock
