// Whether a plan is what its case is about, so that a pass of the case means something.
#pragma once

#include <cstddef>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::testing {

// Schedule, stages and recompute are those that the job asks for.
void ExpectPlanOf(const v1::JobSpec& job, const v1::Plan& plan);

// Products for weights beside exchanges of rows, or micro-batches whose parts are computed beside each
// other's.
bool ComputesBesideExchanges(const v1::Plan& plan);

// Of any micro-batch, over how many different numbers of context ranks its samples lie.
size_t MostDifferentSpans(const v1::Plan& plan);

}  // namespace penstock::testing
