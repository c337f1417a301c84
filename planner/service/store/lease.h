// Which of several planners leads, where they share a store.
//
// A lease is held for a time and renewed; when its holder is silent for longer, another takes it over. Time
// is that of the store, so that the clocks of planners do not matter. Each change of holder begins a new
// *term*, larger than all before; a store is opened with the term of its lease (open/open_event_store.h) and
// refuses to commit when another term has begun: a leader that was stopped and wakes up cannot write
// (fencing), however late it notices.
//
//   PENSTOCK_ASSIGN_OR_RETURN(Term term, lease->Acquire("10.0.0.5:7070"));   // else: try again, a second
//   later
//   ... open the store with this term, load it, serve, and every few seconds:
//   PENSTOCK_RETURN_IF_ERROR(lease->Renew());                               // else: stop to lead, close the
//   store
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace penstock {

// 1, 2, ...; 0: before the first.
using Term = uint64_t;

struct LeaseState {
  Term term = 0;
  // Who holds it; empty: nobody.
  std::string holder = {};
  // How long it still holds it, by the store's clock; not positive: nobody holds it now.
  absl::Duration remaining = absl::ZeroDuration();
};

// Thread-safe. Possible errors of every method: UNAVAILABLE (the store cannot be reached),
// FAILED_PRECONDITION, CANCELLED, as those of EventStore.
class Lease {
 public:
  virtual ~Lease() = default;

  // Begins a new term when nobody holds the lease, or `holder` itself does: it was restarted and need not
  // wait for itself. So two planners must not have one name. Waits for a commit of the old term that is on
  // its way, so that what is loaded afterwards is all there is. Possible errors: ALREADY_EXISTS (somebody
  // else holds it; who, and for how long).
  virtual absl::StatusOr<Term> Acquire(const std::string& holder) = 0;

  // Holds the lease for its whole time again, counted from now. Possible errors: ABORTED (another term has
  // begun, or it was never acquired).
  virtual absl::Status Renew() = 0;

  // Gives the lease up, so that another need not wait; its term may not write any more. A lease that is not
  // held is left alone.
  virtual absl::Status Release() = 0;

  // Who holds it now.
  virtual absl::StatusOr<LeaseState> Read() = 0;

  // As EventStore::Stop.
  virtual void Stop() = 0;
};

}  // namespace penstock
