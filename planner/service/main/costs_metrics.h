// What the planner's metrics say of the costs that each job's plans are made with.
#pragma once

#include "common/metrics/metrics.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

// Adds the families to the registry. Scrapes must end before the slot does.
void WatchCosts(MetricsRegistry* registry, const EngineSlot* engines);

}  // namespace penstock
