// Frees memory on ranks whose programs need more than there is, and changes as little as that takes: layers
// of micro-batches that are held at the peak are recomputed, while the order of passes stays.
#pragma once

#include <cstdint>

#include "planner/core/program/program_set.h"
#include "planner/core/search/candidate.h"

namespace penstock::core {

// Recomputes more of one micro-batch on each rank that is above `limit_bytes`: of those that free what is
// missing the one that delays its replica least, else the one that frees most. `programs` are those of the
// candidate. False when some rank has nothing left to recompute.
bool FreeMemory(const ProgramSet& programs, int64_t limit_bytes, ReplicaEvaluator* evaluator,
                Candidate* candidate);

}  // namespace penstock::core
