#include "planner/service/engine/stream_budget.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sync/sync.h"

namespace penstock {

// Lives as long as the budget, and as what is counted.
class StreamBudget::Counts {
 public:
  explicit Counts(size_t most) : most_(most) {}

  absl::Status Take(const std::string& owner, size_t bytes) {
    MutexLock lock(&mutex_);
    const auto found = held_.find(owner);
    const size_t own = found == held_.end() ? 0 : found->second;
    const size_t owners = held_.size() + (found == held_.end() ? 1 : 0);
    if (total_ + bytes > most_ && own + bytes > most_ / owners) return Refusal(own, bytes);
    AddLocked(owner, bytes);
    return absl::OkStatus();
  }

  void TakeAnyway(const std::string& owner, size_t bytes) {
    MutexLock lock(&mutex_);
    AddLocked(owner, bytes);
  }

  void Return(const std::string& owner, size_t bytes) {
    MutexLock lock(&mutex_);
    total_ -= bytes;
    const auto found = held_.find(owner);
    if ((found->second -= bytes) == 0) held_.erase(found);
  }

  size_t total() const {
    MutexLock lock(&mutex_);
    return total_;
  }

 private:
  void AddLocked(const std::string& owner, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    held_[owner] += bytes;
    total_ += bytes;
  }

  absl::Status Refusal(size_t own, size_t bytes) const {
    return absl::ResourceExhaustedError(absl::StrCat(
        "streams of this owner hold ", own, " bytes that nobody has read, and ", bytes,
        " more have no room: what all streams may hold is ", most_,
        " bytes (an eighth of the planner's --memory). Read the streams, or close those that nobody reads"));
  }

  const size_t most_;
  mutable Mutex mutex_;
  std::map<std::string, size_t> held_ ABSL_GUARDED_BY(mutex_);
  size_t total_ ABSL_GUARDED_BY(mutex_) = 0;
};

StreamBudget::StreamBudget(size_t bytes) : counts_(std::make_shared<Counts>(bytes)) {}

absl::StatusOr<ProgramBytes> StreamBudget::Hold(const std::string& owner, std::string message) const {
  if (absl::Status status = counts_->Take(owner, message.size()); !status.ok()) return status;
  return Counted(owner, std::move(message));
}

ProgramBytes StreamBudget::HoldAnyway(const std::string& owner, std::string message) const {
  counts_->TakeAnyway(owner, message.size());
  return Counted(owner, std::move(message));
}

absl::StatusOr<std::shared_ptr<void>> StreamBudget::HoldBytes(const std::string& owner, size_t bytes) const {
  if (absl::Status status = counts_->Take(owner, bytes); !status.ok()) return status;
  return Counted(owner, bytes);
}

std::shared_ptr<void> StreamBudget::HoldBytesAnyway(const std::string& owner, size_t bytes) const {
  counts_->TakeAnyway(owner, bytes);
  return Counted(owner, bytes);
}

ProgramBytes StreamBudget::Counted(const std::string& owner, std::string message) const {
  const size_t bytes = message.size();
  return {new std::string(std::move(message)), [counts = counts_, owner, bytes](const std::string* held) {
            delete held;
            counts->Return(owner, bytes);
          }};
}

std::shared_ptr<void> StreamBudget::Counted(const std::string& owner, size_t bytes) const {
  return {nullptr, [counts = counts_, owner, bytes](void*) { counts->Return(owner, bytes); }};
}

size_t StreamBudget::held() const { return counts_->total(); }

}  // namespace penstock
