// A sequence of commits that shows afterwards how far it came, and whether one of them is there in part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/service/store/event_store.h"

namespace penstock {

// Batches of so many iterations are kept.
inline constexpr uint64_t kKeptBatches = 20;

// Of iteration `i`; up to 40 kB.
std::string BatchOf(uint64_t i);

// The i-th commit, from 1: three events of job 1, one of job 2, a batch, and every tenth time a snapshot.
std::vector<JobChange> CommitOf(uint64_t i);

// How many commits a store holds. Fails the running test when one of them is there in part, or differs from
// what was committed.
uint64_t CheckCommits(EventStore* store);

}  // namespace penstock
