#include "planner/service/engine/quota_uses.h"

#include <algorithm>
#include <functional>

namespace penstock {

std::vector<v1::QuotaUse> QuotaUsesOf(const OwnerUse& use, const std::vector<JobPlace>& jobs,
                                      const JobQuotas& quotas, const OwnerLimits& limits) {
  std::vector<v1::QuotaUse> uses;
  const auto add = [&](const char* flag, double used, double allowed) {
    v1::QuotaUse& quota = uses.emplace_back();
    quota.set_owner(use.owner);
    quota.set_quota(flag);
    quota.set_used(used);
    quota.set_allowed(allowed);
  };
  const auto count = [&](const std::function<bool(const JobPlace&)>& is_one) {
    return static_cast<double>(std::ranges::count_if(
        jobs, [&](const JobPlace& job) { return job.owner == use.owner && !job.over && is_one(job); }));
  };
  add("jobs-of-owner", count([](const JobPlace&) { return true; }),
      static_cast<double>(MostJobsOfOwner(quotas)));
  add("unstarted-jobs-of-owner", count([](const JobPlace& job) { return !job.started; }),
      static_cast<double>(quotas.unstarted_of_owner));
  add("streams-of-owner", static_cast<double>(use.streams), static_cast<double>(limits.streams));
  add("samples-of-owner-a-minute", use.samples_of_minute, limits.samples_a_minute);
  add("planning-seconds-of-owner-a-minute", use.planning_seconds_of_minute, limits.planning_seconds_a_minute);
  return uses;
}

}  // namespace penstock
