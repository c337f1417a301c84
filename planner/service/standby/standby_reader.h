// Reads jobs from a store that another planner writes, when somebody asks and no more often than is bearable.
//
//   StandbyReader reader([&] { return OpenEventStore(url, {}); }, &clock, {});
//   reader.Read([](absl::StatusOr<StandbyReader::Jobs> jobs) { ... answer ... });
//
// One read at a time, by a thread of its own; all who ask meanwhile are answered by it. What was read is
// given to everybody for a while, with its age: for a second at least, and for ten times as long as the read
// took, so that a store with many jobs is not kept busy by who looks at them. A read that fails is tried
// again as late, and meanwhile the last one that did not is given, however old. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "planner/service/engine/clock.h"
#include "planner/service/standby/stored_jobs.h"
#include "planner/service/store/event_store.h"

namespace penstock {

struct StandbyReaderOptions {
  // Between the beginnings of two reads, at least.
  absl::Duration pause = absl::Seconds(1);
  // The same, in times of what a read took.
  int pause_per_read = 10;
  // Who waits for a read; more are refused.
  size_t waiting = 1024;
};

class StandbyReader {
 public:
  // Blocks for a bounded time, as do the calls of the store.
  using Open = std::function<absl::StatusOr<std::unique_ptr<EventStore>>()>;
  struct Jobs {
    std::shared_ptr<const StoredJobs> jobs;
    // Since the read began.
    absl::Duration age;
  };
  using Done = std::function<void(absl::StatusOr<Jobs>)>;

  // `clock` must outlive it.
  StandbyReader(Open open, const SteadyClock* clock, const StandbyReaderOptions& options);
  // Stops.
  ~StandbyReader();
  StandbyReader(const StandbyReader&) = delete;
  StandbyReader& operator=(const StandbyReader&) = delete;

  // Does not block. `done` is called once: at once, or by the thread that reads.
  // Possible errors: those of EventStore, DATA_LOSS, RESOURCE_EXHAUSTED (too many wait), CANCELLED.
  void Read(Done done);

  // This planner leads: what was read is given back, and the store closed, until somebody asks again. Does
  // not block.
  void Forget();

  // Ends a read that waits for its server; who waits is told CANCELLED. Blocks for as long as opening a store
  // may. Idempotent.
  void Stop();

 private:
  void Run();
  // False when it is time to end.
  bool AwaitWork();
  void CloseIfForgotten();
  absl::StatusOr<std::shared_ptr<const StoredJobs>> ReadNow();
  absl::Status OpenStore();
  void Keep(absl::Time begin, absl::StatusOr<std::shared_ptr<const StoredJobs>> read);
  // What is there without reading.
  absl::StatusOr<Jobs> LastLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Open open_;
  const SteadyClock* const clock_;
  const StandbyReaderOptions options_;

  Mutex mutex_;
  CondVar changed_;
  // Made and destroyed by the thread, outside of which only its Stop() is called.
  std::unique_ptr<EventStore> store_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool forgotten_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);
  // Null: nothing was read yet.
  std::shared_ptr<const StoredJobs> last_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_begin_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_read_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace penstock
