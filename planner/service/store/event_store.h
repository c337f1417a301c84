// Where jobs are kept, so that a planner that was killed goes on. One interface for all stores
// (memory_event_store.h, sqlite/, postgres/), under one contract test (tests/integration/store);
// open/open_event_store.h makes one from a URL.
//
// A job is the fold of its events. A store keeps the events as bytes (it does not know what they mean), the
// batches beside them because they are large, and one snapshot of each job so that a replay stays short.
//
//   PENSTOCK_RETURN_IF_ERROR(store->Commit({{.job = 7, .job_id = "mix", .first_sequence = 1,
//                                            .events = {registered}}}));
//   PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, store->Load());   // after a restart
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/service/store/store_copy.h"

namespace penstock {

// The state of a job after its event `sequence`.
struct Snapshot {
  uint64_t sequence = 0;
  std::string bytes = {};
};

// What becomes of one job. Parts are done in the order in which they stand here; all may be left out.
struct JobChange {
  // Key of the job: unique for each registration, never used again (not the job_id that users give). From 1
  // to 2^63 - 1.
  uint64_t job = 0;
  // For people who look into the store. Required in the first change of a job; not looked at later, but by
  // who puts changes in order (journal/change_queue.h), in the removal.
  std::string job_id = {};
  // Of `events`: they count 1, 2, ... without gaps for each job. Not looked at without events.
  uint64_t first_sequence = 0;
  std::vector<std::string> events = {};
  // (iteration, batch). A second one for an iteration replaces the first.
  std::vector<std::pair<uint64_t, std::string>> batches = {};
  // Batches of earlier iterations are forgotten.
  std::optional<uint64_t> forget_batches_before = {};
  // Takes the place of all events up to and including its sequence, and of the snapshot before it.
  std::optional<Snapshot> snapshot = {};
  // Forgets the job with all that belongs to it; nothing else of the change is looked at. A job that is not
  // stored may be removed.
  bool remove = false;
};

struct StoredJob {
  uint64_t job = 0;
  std::string job_id = {};
  std::optional<Snapshot> snapshot = {};
  // Of `events`; when there are none, that of the next one.
  uint64_t first_sequence = 1;
  std::vector<std::string> events = {};
};

// Thread-safe. One thread commits; others may read meanwhile.
//
// Possible errors of every method, with messages that name the file or server and say what to do:
//   UNAVAILABLE          busy, or the connection is lost: trying again may help
//   RESOURCE_EXHAUSTED   the disk is full; goes on by itself when there is room again
//   FAILED_PRECONDITION  read-only, moved away, or of a newer version: a person has to do something
//   DATA_LOSS            what was stored is damaged
//   CANCELLED            after Stop()
class EventStore {
 public:
  virtual ~EventStore() = default;

  // One transaction: all changes in their order, or none. Durable when it returns OK. Blocks, for a bounded
  // time where a server is waited for.
  //
  // After UNAVAILABLE it may not be known whether the changes took effect. Commit them again, others may
  // follow: what took effect is not done twice.
  //
  // Possible errors: ABORTED (a sequence that exists or leaves a gap, or a job that is not stored: somebody
  // else writes, or another planner leads; do not write again), INVALID_ARGUMENT (a change that cannot be
  // meant), and those above.
  virtual absl::Status Commit(absl::Span<const JobChange> changes) = 0;

  // Everything but the batches, by job.
  virtual absl::StatusOr<std::vector<StoredJob>> Load() = 0;

  // The largest key that any job ever had, removed ones too; 0: none. New jobs take larger ones.
  virtual absl::StatusOr<uint64_t> LargestJob() = 0;

  // Possible errors: NOT_FOUND, and those above.
  virtual absl::StatusOr<std::string> GetBatch(uint64_t job, uint64_t iteration) = 0;

  // Can it be read and written now? For readiness: writes a few bytes, and no more.
  virtual absl::Status Check() = 0;

  // A copy of all that is committed, in a file beside the store's; one at a time. Others may commit and read
  // meanwhile. The store must outlive the copy. Possible errors: UNIMPLEMENTED (not a store that is a file:
  // says what to do), RESOURCE_EXHAUSTED (another copy is made now), and those above.
  virtual absl::StatusOr<std::unique_ptr<StoreCopy>> BeginCopy() = 0;

  // Ends every call that waits for a server, and all later ones, with CANCELLED. Does not block.
  virtual void Stop() = 0;
};

}  // namespace penstock
