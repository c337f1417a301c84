// Says to the planner that a worker is still here whose epoch has failed: it has something to do before it
// joins the next one, and nobody should take it for lost meanwhile (`penstock up` ends workers that give no
// sign of life). Other heartbeats of an epoch end with it.
//
//   const Lingering lingering(link, self, interval);   // until it goes away, on a thread of its own
#pragma once

#include <thread>

#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "worker/agent/planner_link.h"

namespace penstock::worker {

class Lingering {
 public:
  // `link` must outlive this object.
  Lingering(PlannerLink& link, WorkerIdentity self, absl::Duration interval);
  // Blocks for a call at most.
  ~Lingering();
  Lingering(const Lingering&) = delete;
  Lingering& operator=(const Lingering&) = delete;

 private:
  void Run();
  // False: it is over.
  bool Pause();

  PlannerLink& link_;
  const WorkerIdentity self_;
  const absl::Duration interval_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock::worker
