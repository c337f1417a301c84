// Where a topology is one of several that run side by side (Strategy.meshes): what planning it has to know of
// the others.
#pragma once

#include <cstdint>

namespace penstock::core {

struct World {
  // Ranks of the topologies before it, and of all of them; 0: there are no others.
  int32_t first_rank = 0;
  int32_t ranks = 0;
  // The most that any rank of all sends or receives in a RESHARD; 0: as if all ranks were its own.
  int64_t reshard_bytes = 0;
};

}  // namespace penstock::core
