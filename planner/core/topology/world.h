// Where a topology is one of several that run side by side (Strategy.meshes): what planning it has to know of
// the others.
#pragma once

#include <cstdint>

namespace penstock::core {

// What all ranks need of each other's shares, and in how many rounds it can go (execution.md, section 7).
struct WorldReshard {
  // The most that any rank sends or receives in a RESHARD.
  int64_t bytes = 0;
  // Of the rank with the fewest.
  int64_t fewest_layers = 0;
};

struct World {
  // Ranks of the topologies before it, and of all of them; 0: there are no others.
  int32_t first_rank = 0;
  int32_t ranks = 0;
  // Without bytes: as if all ranks were its own.
  WorldReshard reshard = {};
};

}  // namespace penstock::core
