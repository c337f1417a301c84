// Whether a planner has a place for one more job, and which job makes room for it. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace penstock {

struct JobQuotas {
  // Of all owners together.
  size_t jobs = 64;
  // Of one owner that is known, not counting those that are over. 0: three quarters of `jobs`.
  size_t jobs_of_owner = 0;
  // Of one owner, registered and never started.
  size_t unstarted_of_owner = 16;
  // A job that nobody started for so long makes room for another.
  absl::Duration spare_unstarted = absl::Minutes(1);
};

// JobQuotas::jobs_of_owner, with its default.
size_t MostJobsOfOwner(const JobQuotas& quotas);

// A job that has a place.
struct JobPlace {
  // Empty: nobody knows who registered it.
  std::string owner;
  // Since something last happened to it.
  absl::Duration age;
  // Nothing that anybody does brings it back.
  bool over = false;
  // It has a batch, a worker or a reader, or had one.
  bool started = false;
};

// What becomes of a new job of `owner`: nullopt, there is a place; else the number of the job that makes room
// first (then ask again).
// Possible errors: RESOURCE_EXHAUSTED (names the quota, the flag that raises it and what to do).
absl::StatusOr<std::optional<size_t>> MakeRoomFor(const std::string& owner, const std::vector<JobPlace>& jobs,
                                                  const JobQuotas& quotas);

}  // namespace penstock
