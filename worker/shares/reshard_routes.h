// What goes between the shares of all ranks and the stages of all ranks, on one strategy: found by
// intersecting what each has of every parameter, alike on both ends.
//
// It goes in rounds, each of some layers of every rank's stages: from the uppermost ones down, as backward
// passes make their gradients, and all ranks' links are as busy in each (execution.md, sections 5 and 7). The
// messages of few rounds are in memory beside shares and stages. In a round there is one message between the
// share of one rank and the stages of another, in either direction: what they have in common stage by stage,
// in each in the order of its parameters and of the blocks that the rank has of them, and of a block first
// what the first block of the share has of it, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "worker/model/flat_parameters.h"
#include "worker/program/topology.h"
#include "worker/shares/share_layout.h"

namespace penstock::worker {

// Rows of a flat buffer: the first begins at `first`, each one `stride` elements behind the one before.
struct BufferBlock {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;

  int64_t elements() const { return rows * columns; }
  bool operator==(const BufferBlock&) const = default;
};

// The same of the buffers of a stage.
struct StageBlock {
  uint32_t stage = 0;
  BufferBlock block = {};
};

struct ReshardRound {
  // Messages between this rank's share and other ranks' stages, as blocks of the share (ReshardRoutes says
  // whose).
  std::vector<std::vector<BufferBlock>> of_share;
  // By rank: the message between that rank's share and this rank's stages.
  std::vector<std::vector<StageBlock>> of_stages;
  // By stage of this rank: where the lowest parameter begins in its buffers that is in the round and that the
  // stage alone holds. What stages share is in the last round.
  std::map<uint32_t, int64_t> begins;
};

// Of one rank.
struct ReshardRoutes {
  // By rank: which of a round's messages of the share is that rank's. Ranks whose stages hold the same have
  // the same one.
  std::vector<size_t> share_message;
  std::vector<ReshardRound> rounds;
};

// What routes are made of. All must live until they are.
struct ReshardEnds {
  uint32_t rank = 0;
  const ShareLayout* layout = nullptr;
  StageSpecs specs = {};
  // Of the strategy.
  const Topology* topology = nullptr;
  // This rank's, made of the layout's specifications, and by number those of its stages.
  const FlatParameters* share = nullptr;
  std::map<uint32_t, const FlatParameters*> stages = {};
};

// Of the parameters that a rank sends or receives in a round: messages that take far longer than starting
// them.
inline constexpr int64_t kRoundBytes = int64_t{4} << 20;

// As many rounds as have `round_bytes` each on the rank with most, but none without a layer of every rank; at
// least one. `element_bytes`: of a parameter.
ReshardRoutes MakeReshardRoutes(const ReshardEnds& ends, int64_t element_bytes,
                                int64_t round_bytes = kRoundBytes);

}  // namespace penstock::worker
