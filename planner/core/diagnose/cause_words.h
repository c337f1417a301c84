// Causes for people: what they are called, what was found, what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/diagnose/cause.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// "slow_rank": docs/diagnosis.md lists them.
const char* NameOfCause(CauseKind kind);

// A line without an end, with the numbers and places of ranks.
std::string DescribeCause(const Timeline& timeline, const Cause& cause);

// What to look at, and what to type.
const char* AdviceFor(CauseKind kind);

// Whose it is, by position: a rank, the two of a link, those of a ring; none: of all.
std::vector<int32_t> RanksOfCause(const Cause& cause);

// Their numbers in the job.
std::vector<int32_t> NumbersOfRanks(const Timeline& timeline, const std::vector<int32_t>& ranks);

// "rank 3 (replica 1, stage 1)". `rank`: its position in the timeline.
std::string PlaceOfRank(const Timeline& timeline, int32_t rank);

}  // namespace penstock::core
