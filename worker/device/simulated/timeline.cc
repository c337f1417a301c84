#include "worker/device/simulated/timeline.h"

#include <algorithm>
#include <array>

#include "common/status/status_macros.h"

namespace penstock::worker {

void Timeline::Start(const Program& program, int64_t start_ns) {
  MutexLock lock(&mutex_);
  start_ns_ = end_ns_ = start_ns;
  entries_.clear();
  entries_.reserve(program.instructions.size());
  std::array<std::optional<uint32_t>, kStreamCount> last = {};
  for (const Instruction& instruction : program.instructions) {
    Entry& entry = entries_.emplace_back(Entry{.waits_for = instruction.deps});
    std::optional<uint32_t>& before = last[static_cast<size_t>(instruction.stream)];
    if (before.has_value()) entry.waits_for.push_back(*before);
    before = instruction.id;
  }
}

absl::Status Timeline::AwaitLocked(uint32_t id) {
  // Entries do not move during an iteration, and nobody waits between two.
  while (cancelled_.ok() && !entries_[id].span.has_value() && entries_[id].failure.ok())
    changed_.Wait(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(entries_[id].failure);
  return entries_[id].span.has_value() ? absl::OkStatus() : cancelled_;
}

absl::StatusOr<int64_t> Timeline::Ready(uint32_t id) {
  MutexLock lock(&mutex_);
  int64_t ready_ns = start_ns_;
  for (const uint32_t earlier : entries_[id].waits_for) {
    PENSTOCK_RETURN_IF_ERROR(AwaitLocked(earlier));
    ready_ns = std::max(ready_ns, entries_[earlier].span->end_ns);
  }
  PENSTOCK_RETURN_IF_ERROR(cancelled_);
  return ready_ns;
}

void Timeline::End(uint32_t id, int64_t start_ns, int64_t end_ns) {
  MutexLock lock(&mutex_);
  entries_[id].span = {.start_ns = start_ns, .end_ns = end_ns};
  end_ns_ = std::max(end_ns_, end_ns);
  changed_.SignalAll();
}

void Timeline::Fail(uint32_t id, const absl::Status& why) {
  MutexLock lock(&mutex_);
  entries_[id].failure = why;
  changed_.SignalAll();
}

absl::Status Timeline::Await(uint32_t id) {
  MutexLock lock(&mutex_);
  return AwaitLocked(id);
}

void Timeline::Cancel(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (cancelled_.ok()) cancelled_ = why;
  changed_.SignalAll();
}

int64_t Timeline::start_ns() const {
  MutexLock lock(&mutex_);
  return start_ns_;
}

int64_t Timeline::end_ns() const {
  MutexLock lock(&mutex_);
  return end_ns_;
}

std::optional<Timeline::Span> Timeline::At(uint32_t id) const {
  MutexLock lock(&mutex_);
  return entries_[id].span;
}

}  // namespace penstock::worker
