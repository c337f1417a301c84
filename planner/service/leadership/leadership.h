// Leads while it holds the lease of a shared store, follows while another does.
//
//   Leadership leadership({.name = "planner-a:7070"}, [&] { return OpenLease(url, {}); }, &candidate);
//   leadership.Start();
//   ...
//   leadership.Stop();   // gives the lease up, so that another leads at once
//
// A follower looks at the lease every half second, and when it is over by the store's clock. A leader renews
// it six times in its time. It steps down when another term has begun (whoever writes is told by the store,
// too: Lose), and when it could not renew for the lease's whole time, counted by its own clock from before
// the last renewal that succeeded, so never later than the store's; then it follows again. That an old leader
// writes nothing is the store's doing, not this clock's: see store/lease.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "planner/service/leadership/candidate.h"
#include "planner/service/store/lease.h"

namespace penstock {

struct LeadershipOptions {
  // Of this planner, in the lease: HOST:PORT where clients reach it. No other planner has it.
  std::string name;
  // With which the lease is opened.
  absl::Duration time_to_live = absl::Seconds(6);
  // How often a follower looks at the lease, to see soon that it was given up.
  absl::Duration look_again = absl::Milliseconds(500);
  // Longest pause after a Lead that failed.
  absl::Duration longest_pause = absl::Seconds(5);
};

// Thread-safe.
class Leadership {
 public:
  // Blocks for a bounded time. Called again while it fails.
  using OpenLease = std::function<absl::StatusOr<std::unique_ptr<Lease>>()>;

  // `candidate` must outlive it.
  Leadership(LeadershipOptions options, OpenLease open_lease, Candidate* candidate);
  // Stops.
  ~Leadership();
  Leadership(const Leadership&) = delete;
  Leadership& operator=(const Leadership&) = delete;

  // Once.
  void Start();
  // The store says that another leads: steps down soon. Nothing happens while it does not lead.
  void Lose(const absl::Status& why);
  // Steps down, gives the lease up and ends. Blocks for as long as the candidate takes, and two calls of the
  // lease at most. Idempotent.
  void Stop();

 private:
  void Run();
  // Follows, or leads and steps down; how long to wait before the next time.
  absl::Duration Turn();
  // Acquires the lease when nobody else holds it; not ok: why not, and Follow was told.
  absl::StatusOr<Term> TryToAcquire(absl::Duration* look_again);
  absl::StatusOr<Term> Acquire(const LeaseState& state);
  bool IsHeldByAnother(const LeaseState& state) const;
  absl::Status WhyNot(const LeaseState& state) const;
  // From the first moment of a term to its last.
  absl::Status Reign(Term term);
  // Until it is lost or to be given up; why.
  absl::Status AwaitEnd();
  void Follow(const absl::Status& why);

  // The keeper's thread: renews until the reign is over.
  void KeepLease();
  bool AwaitRenewal(absl::Duration pause);
  void Extend(SteadyTime start);
  bool expired() const;

  bool Wait(absl::Duration time);

  const LeadershipOptions options_;
  const OpenLease open_lease_;
  Candidate* const candidate_;
  // Null until it could be opened. The thread's, while it does not lead; then the keeper's.
  std::unique_ptr<Lease> lease_;
  // What Follow was told last.
  absl::Status told_;
  absl::Duration pause_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool reigns_ ABSL_GUARDED_BY(mutex_) = false;
  // The last one of this process; 0: none yet.
  Term term_ ABSL_GUARDED_BY(mutex_) = 0;
  // Why the lease is lost; OK: it is not.
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  // Of the last renewal that failed, OK after one that did not.
  absl::Status renewal_failure_ ABSL_GUARDED_BY(mutex_);
  SteadyTime valid_until_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace penstock
