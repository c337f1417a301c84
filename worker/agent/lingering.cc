#include "worker/agent/lingering.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/sync/thread_name.h"

namespace penstock::worker {
namespace {

// Shorter than of other calls: whoever ends this waits for it.
constexpr absl::Duration kLingeringCall = absl::Milliseconds(500);

}  // namespace

Lingering::Lingering(PlannerLink& link, WorkerIdentity self, absl::Duration interval)
    : link_(link), self_(std::move(self)), interval_(interval), thread_([this] { Run(); }) {}

Lingering::~Lingering() {
  {
    MutexLock lock(&mutex_);
    over_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

bool Lingering::Pause() {
  const absl::Time end = absl::Now() + interval_;
  MutexLock lock(&mutex_);
  while (!over_ && absl::Now() < end) changed_.WaitWithTimeout(&mutex_, end - absl::Now());
  return !over_;
}

// What the planner answers is known, or of another epoch.
void Lingering::Run() {
  NameThisThread("lingering");
  do {
    link_.Heartbeat(self_, {}, kLingeringCall).status().IgnoreError();
  } while (Pause());
}

}  // namespace penstock::worker
