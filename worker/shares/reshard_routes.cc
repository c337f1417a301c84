#include "worker/shares/reshard_routes.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/numeric/int128.h"
#include "common/checkpoint/tensor_blocks.h"

namespace penstock::worker {
namespace {

// A block of a parameter that a rank's stages have.
struct HeldBlock {
  size_t parameter = 0;
  Block block = {};
  // On this rank: the stage, and where in its buffers the block begins.
  uint32_t stage = 0;
  int64_t first = 0;
  // Other stages may have it, too.
  bool shared = false;
  // Layers of the rank's stages above the parameter's; of what is shared all but the lowest.
  int64_t layers_above = 0;
};

// All that a rank's stages have, in the order of messages.
struct Held {
  std::vector<HeldBlock> blocks;
  int64_t layers = 0;

  int64_t elements() const {
    int64_t sum = 0;
    for (const HeldBlock& held : blocks) sum += held.block.elements();
    return sum;
  }
};

// What decides which parameters a rank's stages hold.
using Holding = std::tuple<std::vector<uint32_t>, std::vector<uint32_t>, int, int, int, int>;

Holding HoldingOf(const Topology& topology, uint32_t rank) {
  const GroupPlace place = topology.PlaceOf(rank);
  return {topology.LayersPerStageOf(rank),
          topology.StagesOf(rank),
          place.tensors,
          place.tensor,
          place.experts,
          place.experts > 1 ? place.expert() : 0};
}

Held HeldBy(const ReshardEnds& ends, uint32_t rank) {
  Held held;
  const GroupPlace place = ends.topology->PlaceOf(rank);
  const std::vector<uint32_t> layers_per_stage = ends.topology->LayersPerStageOf(rank);
  std::vector<StageRange> ranges;
  for (const uint32_t stage : ends.topology->StagesOf(rank)) {
    ranges.push_back(StageRangeOf(layers_per_stage, stage));
    held.layers += ranges.back().layers;
  }
  const auto layers_above = [&](int64_t layer) {
    int64_t above = 0;
    for (const StageRange& range : ranges)
      above += std::clamp<int64_t>(range.first_layer + range.layers - layer - 1, 0, range.layers);
    return above;
  };
  for (const uint32_t stage : ends.topology->StagesOf(rank)) {
    const std::vector<ParameterSpec> specs = ends.specs(StageRangeOf(layers_per_stage, stage), place);
    for (size_t i = 0; i < specs.size(); ++i) {
      const size_t parameter = ends.layout->IndexOf(specs[i].name);
      const bool shared = specs[i].shared;
      const int64_t above =
          shared ? held.layers - 1 : layers_above(static_cast<int64_t>(ends.layout->LayerOf(parameter)));
      int64_t first = rank == ends.rank ? ends.stages.at(stage)->parameters[i].offset : 0;
      for (const OwnBlock& own : specs[i].own_part().blocks) {
        held.blocks.push_back({parameter, own.block, stage, first, shared, above});
        first += own.block.elements();
      }
    }
  }
  return held;
}

// `part` of a block that lies in a buffer. What lies end to end is one row.
BufferBlock PlaceOf(const Block& part, const LocatedBlock& in) {
  const int64_t first = in.first + (part.first_row - in.block.first_row) * in.stride + part.first_column -
                        in.block.first_column;
  if (part.rows() == 1 || part.columns() == in.stride) return {first, 1, part.elements(), part.elements()};
  return {first, part.rows(), part.columns(), in.stride};
}

// Whether `next` lies behind `last`, so that both are one row.
bool Continues(const BufferBlock& last, const BufferBlock& next) {
  return last.rows == 1 && next.rows == 1 && last.first + last.columns == next.first;
}

void Extend(BufferBlock& last, const BufferBlock& next) {
  last.columns += next.columns;
  last.stride = last.columns;
}

void Append(const BufferBlock& block, std::vector<BufferBlock>& message) {
  if (!message.empty() && Continues(message.back(), block)) return Extend(message.back(), block);
  message.push_back(block);
}

void Append(const StageBlock& block, std::vector<StageBlock>& message) {
  if (!message.empty() && message.back().stage == block.stage &&
      Continues(message.back().block, block.block)) {
    return Extend(message.back().block, block.block);
  }
  message.push_back(block);
}

// Calls `visit(common, in_share, in_stage)` for each block that the share of `owner` and a held block have in
// common. `first`: where the share of the parameter begins in its buffer.
template <typename Visit>
void ForEachCommon(const ShareLayout& layout, const HeldBlock& held, uint32_t owner, int64_t first,
                   Visit visit) {
  const ElementInterval owned = layout.Of(held.parameter, owner);
  if (owned.size() == 0) return;
  const LocatedBlock in_stage = {held.block, held.first, held.block.columns()};
  const Block whole = WholeBlock(layout.ShapeOf(held.parameter));
  for (const LocatedBlock& in_share : LocatedBlocksOf(whole, owned.begin, owned.end, first)) {
    if (const std::optional<Block> common = Intersection(in_share.block, held.block))
      visit(*common, in_share, in_stage);
  }
}

// Of what ranks have: as many as execution.md, section 7 reckons with.
int64_t RoundsOf(const std::vector<Held>& kinds, const std::vector<size_t>& kind_of_rank,
                 const ShareLayout& layout, int64_t element_bytes, int64_t round_bytes) {
  std::vector<int64_t> elements;
  int64_t fewest_layers = std::numeric_limits<int64_t>::max();
  for (const Held& held : kinds) {
    elements.push_back(held.elements());
    fewest_layers = std::min(fewest_layers, held.layers);
  }
  int64_t all = 0, most = 0;
  for (const size_t kind : kind_of_rank) all += elements[kind];
  const absl::uint128 weights = layout.all_weights();
  for (uint32_t rank = 0; rank < layout.ranks(); ++rank) {
    const absl::uint128 weight = layout.WeightOf(rank);
    const int64_t own = elements[kind_of_rank[rank]];
    const absl::uint128 moved = std::max(own * (weights - weight), (all - own) * weight);
    most = std::max(most, static_cast<int64_t>((moved + weights - 1) / weights));
  }
  return std::clamp<int64_t>(most * element_bytes / round_bytes, 1, std::max<int64_t>(1, fewest_layers));
}

class RouteMaker {
 public:
  explicit RouteMaker(const ReshardEnds& ends) : ends_(ends), layout_(*ends.layout) {
    for (const NamedParameter& parameter : ends.share->parameters)
      first_in_share_[layout_.IndexOf(parameter.name)] = parameter.offset;
  }

  ReshardRoutes Make(int64_t element_bytes, int64_t round_bytes) {
    std::map<Holding, size_t> kinds;
    std::vector<Held> held;
    for (uint32_t holder = 0; holder < layout_.ranks(); ++holder) {
      const auto [known, added] = kinds.try_emplace(HoldingOf(*ends_.topology, holder), kinds.size());
      routes_.share_message.push_back(known->second);
      if (added) held.push_back(HeldBy(ends_, holder));
    }
    routes_.rounds.resize(
        static_cast<size_t>(RoundsOf(held, routes_.share_message, layout_, element_bytes, round_bytes)));
    for (const Held& of_kind : held) AddShareMessage(of_kind);
    const Held own = HeldBy(ends_, ends_.rank);
    for (uint32_t owner = 0; owner < layout_.ranks(); ++owner) AddStagesMessage(own, owner);
    for (const HeldBlock& block : own.blocks) AddBegin(own, block);
    return std::move(routes_);
  }

 private:
  ReshardRound& RoundOf(const Held& held, const HeldBlock& block) {
    const auto rounds = static_cast<int64_t>(routes_.rounds.size());
    return routes_.rounds[static_cast<size_t>(block.layers_above * rounds / held.layers)];
  }

  void AddShareMessage(const Held& all) {
    for (ReshardRound& round : routes_.rounds) round.of_share.emplace_back();
    for (const HeldBlock& held : all.blocks) {
      const auto first = first_in_share_.find(held.parameter);
      if (first == first_in_share_.end()) continue;
      ForEachCommon(layout_, held, ends_.rank, first->second,
                    [&](const Block& common, const LocatedBlock& in_share, const LocatedBlock&) {
                      Append(PlaceOf(common, in_share), RoundOf(all, held).of_share.back());
                    });
    }
  }

  void AddStagesMessage(const Held& own, uint32_t owner) {
    for (ReshardRound& round : routes_.rounds) round.of_stages.emplace_back();
    for (const HeldBlock& held : own.blocks) {
      ForEachCommon(
          layout_, held, owner, /*first=*/0,
          [&](const Block& common, const LocatedBlock&, const LocatedBlock& in_stage) {
            Append(StageBlock{held.stage, PlaceOf(common, in_stage)}, RoundOf(own, held).of_stages.back());
          });
    }
  }

  void AddBegin(const Held& own, const HeldBlock& block) {
    if (block.shared) return;
    int64_t& begin = RoundOf(own, block).begins.try_emplace(block.stage, block.first).first->second;
    begin = std::min(begin, block.first);
  }

  const ReshardEnds& ends_;
  const ShareLayout& layout_;
  // By parameter that this rank's share has some of.
  std::map<size_t, int64_t> first_in_share_;
  ReshardRoutes routes_;
};

}  // namespace

ReshardRoutes MakeReshardRoutes(const ReshardEnds& ends, int64_t element_bytes, int64_t round_bytes) {
  return RouteMaker(ends).Make(element_bytes, round_bytes);
}

}  // namespace penstock::worker
