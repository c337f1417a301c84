// The numbers by which worker processes name themselves to the planner (RegisterWorkerRequest.incarnation).
// Who knows one speaks in the worker's name and is told its epoch's secret: so it is random, and others see
// no more than its digest, which tells one process from another.
//
// Whoever starts a worker may give it a key, in the environment. It then knows the worker's incarnations, one
// for each epoch that the worker joins, and can tell the planner that the process has ended.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace penstock {

// Of the worker's environment.
inline constexpr char kIncarnationKeyVariable[] = "PENSTOCK_INCARNATION_KEY";

// Never 0. Says nothing of the incarnation, if that is random.
uint64_t IncarnationDigest(uint64_t incarnation);

// The incarnation of a worker that has such a key when it joins an epoch for the `join`-th time, from 0.
// Never 0. `key` is random (random_secret.h).
uint64_t IncarnationOf(absl::string_view key, uint64_t join);

}  // namespace penstock
