// Low-rank adapters of a plan's model (execution.md, sections 5 and 7). Private to this folder.
#pragma once

#include <cstdint>

#include "penstock/v1/plan.pb.h"
#include "planner/core/verify/report.h"

namespace penstock::core::verify {

// Rule 0: they are such that a model may have them.
void CheckAdapterFields(const v1::Plan& plan, Report& report);

// Of all adapters of a stage, on one of its ranks: what a REDUCE_GRADIENTS has. The plan has adapters.
uint64_t AdapterBytes(const v1::Plan& plan, uint32_t stage);

}  // namespace penstock::core::verify
