// Rules that suit a candidate better than those it was made with.
#pragma once

#include <functional>

#include "planner/core/search/candidate.h"

namespace penstock::core {

// ScheduleSpace::Fit is careful: it assumes that the largest micro-batches of a replica are in flight
// together. Tries less recompute in steps, then forward passes first, and keeps what gives the smallest
// makespan. The candidate has been evaluated.
void TuneRules(ReplicaEvaluator* evaluator, Candidate* candidate);

// Takes back recompute that memory does not ask for, micro-batch by micro-batch and stage by stage, while the
// order of passes stays; no makespan grows by it. Does as much of it as a fixed number of passes allows.
// `fits`, if there, must agree to a replica as it is after every change.
void TrimRecompute(ReplicaEvaluator* evaluator, Candidate* candidate,
                   const std::function<bool(int replica)>& fits = nullptr);

}  // namespace penstock::core
