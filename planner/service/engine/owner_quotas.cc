#include "planner/service/engine/owner_quotas.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/sync.h"
#include "planner/service/engine/minute_bucket.h"
#include "planner/service/engine/payer.h"

namespace penstock {
namespace {

// Who has used nothing for so long may be forgotten. A bucket that owes nothing is full by then.
constexpr absl::Duration kIdle = absl::Minutes(1);

void Add(const OwnerUse& use, OwnerUse* sum) {
  sum->streams += use.streams;
  sum->samples += use.samples;
  for (size_t kind = 0; kind < kPlanningClasses; ++kind) sum->planning[kind] += use.planning[kind];
  for (size_t quota = 0; quota < kOwnerQuotas; ++quota) sum->refused[quota] += use.refused[quota];
  sum->samples_of_minute += use.samples_of_minute;
  sum->planning_seconds_of_minute += use.planning_seconds_of_minute;
}

}  // namespace

// Lives as long as the quotas, and as the streams that are counted.
class OwnerQuotas::Counts {
 public:
  Counts(const OwnerLimits& limits, const SteadyClock* clock) : limits_(limits), clock_(clock) {}

  absl::Status OpenStream(const std::string& payer, bool anyway) {
    MutexLock lock(&mutex_);
    Owner& owner = OwnerLocked(payer);
    if (!anyway && owner.use.streams >= limits_.streams) {
      return RefuseLocked(owner, OwnerQuota::kStreams,
                          absl::StrCat(NameOfPayer(payer), " has ", owner.use.streams,
                                       " open streams of programs, the quota is ", limits_.streams,
                                       ": try again when one is closed, or raise --streams-of-owner"));
    }
    ++owner.use.streams;
    return absl::OkStatus();
  }

  void CloseStream(const std::string& payer) {
    MutexLock lock(&mutex_);
    // It is there: who has a stream is not forgotten.
    --owners_.find(payer)->second.use.streams;
  }

  absl::Status CheckSamples(const std::string& payer) {
    MutexLock lock(&mutex_);
    return CheckSamplesLocked(OwnerLocked(payer), payer);
  }

  absl::Status TakeSamples(const std::string& payer, size_t samples) {
    MutexLock lock(&mutex_);
    Owner& owner = OwnerLocked(payer);
    PENSTOCK_RETURN_IF_ERROR(CheckSamplesLocked(owner, payer));
    owner.samples.Take(static_cast<double>(samples), clock_->Now());
    owner.use.samples += samples;
    return absl::OkStatus();
  }

  absl::Status CheckPlanning(const std::string& payer) {
    MutexLock lock(&mutex_);
    Owner& owner = OwnerLocked(payer);
    const absl::Duration wait = owner.planning.Wait(clock_->Now());
    if (wait == absl::ZeroDuration()) return absl::OkStatus();
    return RefuseLocked(
        owner, OwnerQuota::kPlanning,
        absl::StrCat(NameOfPayer(payer), " has used its planning time, the quota is ",
                     limits_.planning_seconds_a_minute, " seconds a minute: try again in ",
                     absl::FormatDuration(wait), ", or raise --planning-seconds-of-owner-a-minute"));
  }

  void ChargePlanning(const std::string& payer, PlanningClass kind, absl::Duration took) {
    MutexLock lock(&mutex_);
    Owner& owner = OwnerLocked(payer);
    owner.planning.Take(absl::ToDoubleSeconds(took), clock_->Now());
    owner.use.planning[static_cast<size_t>(kind)] += took;
  }

  void CountRefusal(const std::string& payer, OwnerQuota quota) {
    MutexLock lock(&mutex_);
    ++OwnerLocked(payer).use.refused[static_cast<size_t>(quota)];
  }

  std::vector<OwnerUse> Uses() const {
    MutexLock lock(&mutex_);
    std::map<std::string, OwnerUse> sums = forgotten_;
    const absl::Time now = clock_->Now();
    for (const auto& [payer, owner] : owners_) {
      OwnerUse use = owner.use;
      use.samples_of_minute = owner.samples.Used(now);
      use.planning_seconds_of_minute = owner.planning.Used(now);
      Add(use, &sums[use.owner]);
    }
    std::vector<OwnerUse> uses;
    uses.reserve(sums.size());
    for (auto& [name, sum] : sums) {
      sum.owner = name;
      uses.push_back(std::move(sum));
    }
    return uses;
  }

 private:
  struct Owner {
    OwnerUse use;
    MinuteBucket samples;
    MinuteBucket planning;
    absl::Time last;
  };

  static bool IsNamed(const OwnerUse& use) { return !use.owner.empty() && use.owner != kOtherOwners; }

  bool IsIdle(const Owner& owner, absl::Time now) const {
    return owner.use.streams == 0 && now - owner.last >= kIdle && owner.samples.IsFull(now) &&
           owner.planning.IsFull(now);
  }

  Owner& OwnerLocked(const std::string& payer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time now = clock_->Now();
    auto found = owners_.find(payer);
    if (found == owners_.end()) {
      if (owners_.size() >= forget_at_) ForgetLocked(now);
      std::string name = OwnerOfPayer(payer);
      if (!name.empty() && named_ >= kMostOwners) name = kOtherOwners;
      found = owners_
                  .emplace(payer, Owner{{.owner = std::move(name)},
                                        MinuteBucket(limits_.samples_a_minute, now),
                                        MinuteBucket(limits_.planning_seconds_a_minute, now),
                                        now})
                  .first;
      if (IsNamed(found->second.use)) ++named_;
    }
    found->second.last = now;
    return found->second;
  }

  // What they used stays in the sums.
  void ForgetLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto entry = owners_.begin(); entry != owners_.end();) {
      const Owner& owner = entry->second;
      if (!IsIdle(owner, now)) {
        ++entry;
        continue;
      }
      if (IsNamed(owner.use)) --named_;
      Add(owner.use, &forgotten_[owner.use.owner.empty() ? "" : kOtherOwners]);
      entry = owners_.erase(entry);
    }
    forget_at_ = std::max(kMostOwners, 2 * owners_.size());
  }

  absl::Status CheckSamplesLocked(Owner& owner, const std::string& payer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Duration wait = owner.samples.Wait(clock_->Now());
    if (wait == absl::ZeroDuration()) return absl::OkStatus();
    return RefuseLocked(owner, OwnerQuota::kSamples,
                        absl::StrCat(NameOfPayer(payer), " has used its samples, the quota is ",
                                     limits_.samples_a_minute, " a minute: try again in ",
                                     absl::FormatDuration(wait), ", or raise --samples-of-owner-a-minute"));
  }

  static absl::Status RefuseLocked(Owner& owner, OwnerQuota quota, const std::string& message) {
    ++owner.use.refused[static_cast<size_t>(quota)];
    return RefusedBy(quota, message);
  }

  const OwnerLimits limits_;
  const SteadyClock* const clock_;
  mutable Mutex mutex_;
  // By payer.
  std::map<std::string, Owner> owners_ ABSL_GUARDED_BY(mutex_);
  // Of `owners_`, those that Uses() names.
  size_t named_ ABSL_GUARDED_BY(mutex_) = 0;
  // Owners, before those that are idle are forgotten.
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = kMostOwners;
  // By what Uses() names them.
  std::map<std::string, OwnerUse> forgotten_ ABSL_GUARDED_BY(mutex_);
};

OwnerQuotas::OwnerQuotas(const OwnerLimits& limits, const SteadyClock* clock)
    : counts_(std::make_shared<Counts>(limits, clock)) {}

absl::StatusOr<std::shared_ptr<void>> OwnerQuotas::OpenStream(const std::string& payer) const {
  if (absl::Status status = counts_->OpenStream(payer, /*anyway=*/false); !status.ok()) return status;
  return Counted(payer);
}

std::shared_ptr<void> OwnerQuotas::OpenStreamAnyway(const std::string& payer) const {
  counts_->OpenStream(payer, /*anyway=*/true).IgnoreError();
  return Counted(payer);
}

std::shared_ptr<void> OwnerQuotas::Counted(const std::string& payer) const {
  return {nullptr, [counts = counts_, payer](void*) { counts->CloseStream(payer); }};
}

absl::Status OwnerQuotas::CheckSamples(const std::string& payer) const {
  return counts_->CheckSamples(payer);
}

absl::Status OwnerQuotas::TakeSamples(const std::string& payer, size_t samples) const {
  return counts_->TakeSamples(payer, samples);
}

absl::Status OwnerQuotas::CheckPlanning(const std::string& payer) const {
  return counts_->CheckPlanning(payer);
}

void OwnerQuotas::ChargePlanning(const std::string& payer, PlanningClass kind, absl::Duration took) const {
  counts_->ChargePlanning(payer, kind, took);
}

void OwnerQuotas::CountRefusal(const std::string& payer, const absl::Status& status) const {
  if (const auto quota = QuotaThatRefused(status); quota.has_value()) counts_->CountRefusal(payer, *quota);
}

std::vector<OwnerUse> OwnerQuotas::Uses() const { return counts_->Uses(); }

}  // namespace penstock
