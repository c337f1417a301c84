// A plan of a job that may have shares of parameters, strategies or buckets of gradients, checked in all
// ways.
#pragma once

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// Expects that the checker and the audit find nothing and that the lower bound is one.
v1::Plan SoundPlanOf(const v1::JobSpec& job, const v1::Batch& batch);

}  // namespace penstock::core
