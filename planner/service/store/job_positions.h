// Which changes a store may take: the rules of JobChange, the same for every store.
//
//   PENSTOCK_RETURN_IF_ERROR(CheckRanges(changes));
//   JobPositions positions;
//   for each job that the changes name: positions.Set(job, what the store has of it);
//   PENSTOCK_RETURN_IF_ERROR(positions.Advance(changes));   // now every change can be written
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "planner/service/store/event_store.h"

namespace penstock {

// INVALID_ARGUMENT, naming job and field, when a number is not one that databases count.
absl::Status CheckRanges(absl::Span<const JobChange> changes);

// How far a stored job is; sequences of 0: no event, no snapshot.
struct JobPosition {
  uint64_t last_sequence = 0;
  uint64_t snapshot_sequence = 0;
};

class JobPositions {
 public:
  // A job that is stored. Those that are not set are not stored.
  void Set(uint64_t job, JobPosition position) { positions_[job] = position; }

  // Moves the positions on by all changes. At the first change that does not follow, an error that names its
  // job, and positions are worth nothing. Possible errors: ABORTED, INVALID_ARGUMENT, as EventStore::Commit.
  absl::Status Advance(absl::Span<const JobChange> changes);

  const std::map<uint64_t, JobPosition>& positions() const { return positions_; }

 private:
  absl::Status AdvanceJob(const JobChange& change);

  std::map<uint64_t, JobPosition> positions_;
};

// The jobs that changes name, each once, by key.
std::vector<uint64_t> JobsOf(absl::Span<const JobChange> changes);

// The largest job that changes name; 0 when there are none.
uint64_t LargestJobOf(absl::Span<const JobChange> changes);

// The errors of all stores for what is not there.
absl::Status BatchNotFound(uint64_t job, uint64_t iteration);

}  // namespace penstock
