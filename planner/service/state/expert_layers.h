// How evenly routers spread the rows of an iteration, layer by layer, by what its ranks reported.
#pragma once

#include <vector>

#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// IterationSummary.expert_layers. `topology`: who was where in the iteration's plan, of the job's strategy
// with this number (0 where it has none). `reports`: of all ranks. Nothing where a rank's rows are not one
// number for each of its layers with experts.
std::vector<v1::ExpertLayerLoad> ExpertLayersOf(const v1::JobSpec& job, const v1::Topology& topology,
                                                uint32_t strategy,
                                                const std::vector<store::v1::IterationReported>& reports);

}  // namespace penstock
