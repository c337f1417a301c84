// Frees memory on ranks whose programs need more than there is, and changes as little as that takes: layers
// of micro-batches that are held at the peak are recomputed, while the order of passes stays.
#pragma once

#include <cstdint>

#include "planner/core/model/memory_limits.h"
#include "planner/core/program/program_set.h"
#include "planner/core/search/candidate.h"

namespace penstock::core {

// Recomputes more at every peak above a rank's limit: of the micro-batches that free what is missing, more of
// the one that delays its replica least, else of the one that frees most. `programs` are those of the
// candidate. New ones may still be above the limit, as their times are others. False when a rank stays above
// it on this account, because nothing is left to recompute there or choosing has taken a fixed number of
// passes; what has been changed until then stays.
bool FreeMemory(ProgramSet programs, const MemoryLimits& limits, ReplicaEvaluator* evaluator,
                Candidate* candidate);

}  // namespace penstock::core
