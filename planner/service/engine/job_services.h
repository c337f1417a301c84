// What all jobs of a planner share.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/service/engine/batch_planner.h"
#include "planner/service/engine/clock.h"
#include "planner/service/engine/memory_budget.h"
#include "planner/service/engine/observer.h"
#include "planner/service/engine/owner_quotas.h"
#include "planner/service/engine/planning_pool.h"
#include "planner/service/engine/stream_budget.h"
#include "planner/service/journal/journal.h"
#include "planner/service/store/event_store.h"

namespace penstock {

// A secret that nobody can guess, of kSecretBytes; called by any thread.
using MakeSecret = std::function<absl::StatusOr<std::string>()>;

// None is owned; all outlive the jobs.
struct JobServices {
  const BatchPlannerFactory* planners = nullptr;
  const PlanChecker* checker = nullptr;
  EventStore* store = nullptr;
  Journal* journal = nullptr;
  PlanningPool* pool = nullptr;
  const SteadyClock* clock = nullptr;
  EngineObserver* observer = nullptr;
  // How long one batch, or the preparation of a job, may compute.
  absl::Duration planning_limit = absl::InfiniteDuration();
  // A plan that is needed next is made even beyond it.
  const MemoryBudget* memory = nullptr;
  const StreamBudget* streams = nullptr;
  const OwnerQuotas* quotas = nullptr;
  // What one batch may take.
  core::PlanningRoom room = {};
  // What one answer may be as a message.
  int64_t message_bytes = std::numeric_limits<int64_t>::max();
  // Layouts of stages that are planned at a time while a job is prepared.
  int preparation_threads = 1;
  // For each epoch.
  MakeSecret make_secret = nullptr;
};

}  // namespace penstock
