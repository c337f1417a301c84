// What owners use of a planner, and how much one of them may: open streams, samples and planning seconds a
// minute.
//
//   OwnerQuotas quotas({.samples_a_minute = 100'000}, &clock);
//   PENSTOCK_RETURN_IF_ERROR(quotas.TakeSamples(payer, batch.samples_size()));
//
// Quotas of jobs are in job_places.h; their refusals are counted here. Whom something is counted for is
// payer.h's. What an owner used is kept while it uses something and for long after it; where there are many
// owners, it goes into a sum with that of others a minute after the last use. Thread-safe; may be destroyed
// before the streams it counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/service/engine/clock.h"
#include "planner/service/engine/planning_ticket.h"
#include "planner/service/engine/quota_refusal.h"

namespace penstock {

// Of one owner.
struct OwnerLimits {
  // Open at a time, beside the one of each worker.
  size_t streams = 4096;
  // 0: no limit.
  double samples_a_minute = 0;
  double planning_seconds_a_minute = 0;
};

// What an owner has now, and what it has used since it is known.
struct OwnerUse {
  // Empty: all that nobody knows. kOtherOwners: those beyond kMostOwners, and those that are forgotten.
  std::string owner;
  size_t streams = 0;
  uint64_t samples = 0;
  // By PlanningClass: what planning threads computed for it.
  std::array<absl::Duration, kPlanningClasses> planning = {};
  // By OwnerQuota.
  std::array<uint64_t, kOwnerQuotas> refused = {};
  // Of what a minute allows, MinuteBucket::Used.
  double samples_of_minute = 0;
  double planning_seconds_of_minute = 0;
};

class OwnerQuotas {
 public:
  // Named by Uses() at a time.
  static constexpr size_t kMostOwners = 100;
  static constexpr char kOtherOwners[] = "other";

  // `clock` must outlive this.
  OwnerQuotas(const OwnerLimits& limits, const SteadyClock* clock);

  // Counts a stream for as long as the result is kept. Possible errors: RESOURCE_EXHAUSTED (names the quota).
  absl::StatusOr<std::shared_ptr<void>> OpenStream(const std::string& payer) const;
  // The same for what must be open whatever else is.
  std::shared_ptr<void> OpenStreamAnyway(const std::string& payer) const;

  // Takes all or none. Possible errors: RESOURCE_EXHAUSTED (names the quota, and when to try again).
  absl::Status TakeSamples(const std::string& payer, size_t samples) const;
  // What TakeSamples would say, and takes none.
  absl::Status CheckSamples(const std::string& payer) const;

  // Whether something new may be planned. What it takes is known and charged when it has been planned.
  // Possible errors: as TakeSamples.
  absl::Status CheckPlanning(const std::string& payer) const;
  void ChargePlanning(const std::string& payer, PlanningClass kind, absl::Duration took) const;

  // For quotas that others keep: nothing where `status` is of none.
  void CountRefusal(const std::string& payer, const absl::Status& status) const;

  // By name. Counters of an owner that was forgotten begin anew.
  std::vector<OwnerUse> Uses() const;

 private:
  class Counts;
  // Not before the stream is closed.
  std::shared_ptr<void> Counted(const std::string& payer) const;

  const std::shared_ptr<Counts> counts_;
};

}  // namespace penstock
