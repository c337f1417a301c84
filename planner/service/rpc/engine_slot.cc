#include "planner/service/rpc/engine_slot.h"

#include <utility>

namespace penstock {

void EngineSlot::Lead(EnginePtr engine) {
  MutexLock lock(&mutex_);
  engine_.swap(engine);
  why_not_ = absl::OkStatus();
}

void EngineSlot::LeadUntil(SteadyTime end) {
  MutexLock lock(&mutex_);
  end_ = end;
}

void EngineSlot::Follow(EnginePtr what_ifs, absl::Status why) {
  MutexLock lock(&mutex_);
  engine_.swap(what_ifs);
  why_not_ = std::move(why);
}

void EngineSlot::Explain(absl::Status why) {
  MutexLock lock(&mutex_);
  why_not_ = std::move(why);
}

void EngineSlot::Clear() { Follow(nullptr, absl::UnavailableError("the planner stops; try again")); }

absl::StatusOr<EnginePtr> EngineSlot::ForJobs() const {
  MutexLock lock(&mutex_);
  if (!why_not_.ok()) return why_not_;
  if (std::chrono::steady_clock::now() < end_) return engine_;
  return absl::UnavailableError("this planner led until its lease was over; try again");
}

absl::StatusOr<EnginePtr> EngineSlot::ForWhatIfs() const {
  MutexLock lock(&mutex_);
  if (engine_ == nullptr) return why_not_;
  return engine_;
}

bool EngineSlot::expired() const {
  MutexLock lock(&mutex_);
  return why_not_.ok() && std::chrono::steady_clock::now() >= end_;
}

EnginePtr EngineSlot::current() const {
  MutexLock lock(&mutex_);
  return engine_;
}

}  // namespace penstock
