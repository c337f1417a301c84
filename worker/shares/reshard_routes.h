// What goes between the shares of all ranks and the stages of all ranks, on one strategy: found by
// intersecting what each has of every parameter, alike on both ends.
//
// It goes in rounds, each of some layers, so that the messages of these alone are in memory beside shares and
// stages. In a round there is one message between the share of one rank and the stages of another, in either
// direction: what they have in common stage by stage, in each in the order of its parameters and of the
// blocks that the rank has of them, and of a block first what the first block of the share has of it, row by
// row.
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

// Elements of whole parameters in a round: messages that take far longer than starting them.
inline constexpr int64_t kRoundElements = int64_t{16} << 20;

// A round has the next layers up to so many elements, at least one layer.
ReshardRoutes MakeReshardRoutes(const ReshardEnds& ends, int64_t round_elements = kRoundElements);

}  // namespace penstock::worker
