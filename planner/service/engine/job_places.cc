#include "planner/service/engine/job_places.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "planner/service/engine/quota_refusal.h"

namespace penstock {
namespace {

using Places = std::vector<JobPlace>;
using IsOne = std::function<bool(const JobPlace&)>;

std::optional<size_t> OldestOf(const Places& jobs, const IsOne& is_one) {
  std::optional<size_t> oldest;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (is_one(jobs[i]) && (!oldest.has_value() || jobs[i].age > jobs[*oldest].age)) oldest = i;
  }
  return oldest;
}

size_t Count(const Places& jobs, const IsOne& is_one) {
  return static_cast<size_t>(std::count_if(jobs.begin(), jobs.end(), is_one));
}

std::string NameOf(const std::string& owner) {
  return owner.empty() ? "callers without an owner have" : absl::StrCat("owner '", owner, "' has");
}

}  // namespace

size_t MostJobsOfOwner(const JobQuotas& quotas) {
  return quotas.jobs_of_owner > 0 ? quotas.jobs_of_owner : std::max<size_t>(1, quotas.jobs / 4 * 3);
}

absl::StatusOr<std::optional<size_t>> MakeRoomFor(const std::string& owner, const Places& jobs,
                                                  const JobQuotas& quotas) {
  const IsOne waits = [&](const JobPlace& job) { return !job.over && !job.started && job.owner == owner; };
  const IsOne lives = [&](const JobPlace& job) { return !job.over && job.owner == owner; };
  const IsOne idle = [&](const JobPlace& job) {
    return !job.over && !job.started && job.age > quotas.spare_unstarted;
  };
  if (const size_t unstarted = Count(jobs, waits); unstarted >= quotas.unstarted_of_owner) {
    const auto oldest = OldestOf(jobs, [&](const JobPlace& job) { return waits(job) && idle(job); });
    if (oldest.has_value()) return oldest;
    return RefusedBy(
        OwnerQuota::kUnstartedJobs,
        absl::StrCat(
            NameOf(owner), " ", unstarted,
            " jobs that nobody started, the quota: start or delete one, try again in a minute, or raise "
            "--unstarted-jobs-of-owner"));
  }
  if (const size_t own = Count(jobs, lives); !owner.empty() && own >= MostJobsOfOwner(quotas)) {
    return RefusedBy(
        OwnerQuota::kJobs,
        absl::StrCat(NameOf(owner), " ", own,
                     " jobs that are not over, the quota: drain or delete one, or raise --jobs-of-owner"));
  }
  if (jobs.size() < quotas.jobs) return std::nullopt;
  auto oldest = OldestOf(jobs, [](const JobPlace& job) { return job.over; });
  if (!oldest.has_value()) oldest = OldestOf(jobs, idle);
  if (oldest.has_value()) return oldest;
  return absl::ResourceExhaustedError(
      absl::StrCat("the planner has ", jobs.size(),
                   " jobs that are not over, its limit: drain or delete one, or raise --max-jobs"));
}

}  // namespace penstock
