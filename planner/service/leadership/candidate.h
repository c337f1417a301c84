// What a planner does when it begins to lead and when it ceases to: what Leadership calls.
#pragma once

#include <chrono>
#include <limits>

#include "absl/status/status.h"
#include "planner/service/store/lease.h"

namespace penstock {

// Of a clock that only goes forward, and goes on while the process is stopped.
using SteadyTime = std::chrono::steady_clock::time_point;

inline constexpr Term kEveryTerm = std::numeric_limits<Term>::max();

// Follow, Lead and StepDown are called by one thread, one at a time; LeadUntil and Abandon by any.
class Candidate {
 public:
  virtual ~Candidate() = default;

  // It does not lead, and why: UNAVAILABLE, for clients to read; names the leader where there is one
  // (penstock/client/standby.h, too). Again
  // whenever that changes.
  virtual void Follow(const absl::Status& why) = 0;

  // Opens the store with the term, loads it and serves. Blocks until it serves, or has failed and is back
  // where it was.
  virtual absl::Status Lead(Term term) = 0;

  // From this moment on another may lead, unless it is called again: nothing may be served any more that
  // another leader might know better. Comes before Lead, and again with each renewal.
  virtual void LeadUntil(SteadyTime end) = 0;

  // A Lead with this term or one before, that runs or is about to, ends soon: the lease is lost, or
  // (kEveryTerm) the process ends. Does not block.
  virtual void Abandon(Term term) = 0;

  // After a Lead that succeeded: stops serving at once, ends what runs, closes the store. Blocks, for a
  // bounded time. OK: the process ends, in good order; else why the lease is lost.
  virtual void StepDown(const absl::Status& why) = 0;
};

}  // namespace penstock
