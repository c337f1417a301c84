// Names under which the health service of a planner answers, beside "" (it lives, and answers PlanBatch).
#pragma once

namespace penstock {

// Ready for jobs: it leads and its store can be written.
inline constexpr char kReadyForJobs[] = "penstock.v1.PlannerService";
// It leads. Clients that know several planners use the one that says so; also while its store cannot be
// written, when it still answers what changes nothing.
inline constexpr char kLeads[] = "penstock.v1.PlannerService/leader";

}  // namespace penstock
