// Which ranks hold the same parameters and optimizer state, and whether the parts of a checkpoint that some
// of them have written are all of it. Follows from the job alone.
//
// What the ranks of a ring all hold they divide when they write a checkpoint: the rank at place i writes
// share i. A rank that is left when others are lost writes share i + 1 too, that of the rank behind it (the
// first one's, where it is the last): whichever ranks of a ring are lost, as long as no two of them follow
// each other, every share is written, in twice the bytes.
//
//   const std::vector<RankGroup> rings = HolderRings(job);
//   if (rings.empty()) ... a rank that is lost takes with it what nobody else has ...
//   if (CoverAll(rings, {{0, WrittenShares::kOwnAndNext}, {3, WrittenShares::kOwn}})) ...
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker/program/job.h"
#include "worker/program/topology.h"

namespace penstock::worker {

// Ranks in the order of their shares: those that have a tensor rank's part of some stages, in all replicas
// and at all context ranks of them; and where ranks divide the experts, those that have the same experts.
// Empty where a rank has something alone: a ring of one, a state that its holders divide
// (shard_optimizer_state), parameters in shares; also where the stages of a rank have different holders.
std::vector<RankGroup> HolderRings(const JobConfig& job);

// What of a ring's shares the part of a rank has.
enum class WrittenShares : uint8_t { kOwn, kOwnAndNext };

// Whether parts of these ranks have every share of every ring.
bool CoverAll(const std::vector<RankGroup>& rings, const std::map<uint32_t, WrittenShares>& parts);

}  // namespace penstock::worker
