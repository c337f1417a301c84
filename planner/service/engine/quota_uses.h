// How much of its quotas an owner has used, for people who ask (docs/operations.md). Pure.
#pragma once

#include <string>
#include <vector>

#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_places.h"
#include "planner/service/engine/owner_quotas.h"

namespace penstock {

// One for each quota, in the order of OwnerQuota. `use`: of the owner, or all 0. `jobs`: those of the
// planner.
std::vector<v1::QuotaUse> QuotaUsesOf(const OwnerUse& use, const std::vector<JobPlace>& jobs,
                                      const JobQuotas& quotas, const OwnerLimits& limits);

}  // namespace penstock
