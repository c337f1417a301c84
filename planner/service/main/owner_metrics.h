// What the planner's metrics say of each owner: what it uses, and what its quotas refused.
//
// The label `owner` is that of OwnerUse: empty for all that nobody knows, "other" for owners beyond a
// hundred and those that are forgotten.
#pragma once

#include "common/metrics/metrics.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

class OwnerMetrics {
 public:
  // Adds the families to the registry. Scrapes must end before the slot does.
  static void Watch(MetricsRegistry* registry, const EngineSlot* engines);
};

}  // namespace penstock
