#include "worker/shares/reshard_routes.h"

#include <optional>
#include <tuple>
#include <utility>

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

// In the order of messages.
std::vector<HeldBlock> HeldBy(const ReshardEnds& ends, uint32_t rank) {
  std::vector<HeldBlock> held;
  const GroupPlace place = ends.topology->PlaceOf(rank);
  const std::vector<uint32_t> layers_per_stage = ends.topology->LayersPerStageOf(rank);
  for (const uint32_t stage : ends.topology->StagesOf(rank)) {
    const std::vector<ParameterSpec> specs = ends.specs(StageRangeOf(layers_per_stage, stage), place);
    for (size_t i = 0; i < specs.size(); ++i) {
      const size_t parameter = ends.layout->IndexOf(specs[i].name);
      int64_t first = rank == ends.rank ? ends.stages.at(stage)->parameters[i].offset : 0;
      for (const OwnBlock& own : specs[i].own_part().blocks) {
        held.push_back({parameter, own.block, stage, first});
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

// By layer: its round.
std::vector<size_t> RoundsOf(const std::vector<int64_t>& layers, int64_t round_elements) {
  std::vector<size_t> rounds;
  int64_t elements = 0;
  for (const int64_t of_layer : layers) {
    const bool next = !rounds.empty() && elements + of_layer > round_elements;
    elements = next ? of_layer : elements + of_layer;
    rounds.push_back(rounds.empty() ? 0 : rounds.back() + (next ? 1 : 0));
  }
  return rounds;
}

class RouteMaker {
 public:
  RouteMaker(const ReshardEnds& ends, int64_t round_elements)
      : ends_(ends), layout_(*ends.layout), round_of_layer_(RoundsOf(layout_.layers(), round_elements)) {
    for (const NamedParameter& parameter : ends.share->parameters)
      first_in_share_[layout_.IndexOf(parameter.name)] = parameter.offset;
    routes_.rounds.resize(round_of_layer_.empty() ? 0 : round_of_layer_.back() + 1);
  }

  ReshardRoutes Make() {
    std::map<Holding, size_t> messages;
    for (uint32_t holder = 0; holder < layout_.ranks(); ++holder) {
      const auto [known, added] = messages.try_emplace(HoldingOf(*ends_.topology, holder), messages.size());
      routes_.share_message.push_back(known->second);
      if (added) AddShareMessage(HeldBy(ends_, holder));
    }
    const std::vector<HeldBlock> own = HeldBy(ends_, ends_.rank);
    for (uint32_t owner = 0; owner < layout_.ranks(); ++owner) AddStagesMessage(own, owner);
    return std::move(routes_);
  }

 private:
  ReshardRound& RoundOf(const HeldBlock& held) {
    return routes_.rounds[round_of_layer_[layout_.LayerOf(held.parameter)]];
  }

  void AddShareMessage(const std::vector<HeldBlock>& all_held) {
    for (ReshardRound& round : routes_.rounds) round.of_share.emplace_back();
    for (const HeldBlock& held : all_held) {
      const auto first = first_in_share_.find(held.parameter);
      if (first == first_in_share_.end()) continue;
      ForEachCommon(layout_, held, ends_.rank, first->second,
                    [&](const Block& common, const LocatedBlock& in_share, const LocatedBlock&) {
                      Append(PlaceOf(common, in_share), RoundOf(held).of_share.back());
                    });
    }
  }

  void AddStagesMessage(const std::vector<HeldBlock>& own, uint32_t owner) {
    for (ReshardRound& round : routes_.rounds) round.of_stages.emplace_back();
    for (const HeldBlock& held : own) {
      ForEachCommon(
          layout_, held, owner, /*first=*/0,
          [&](const Block& common, const LocatedBlock&, const LocatedBlock& in_stage) {
            Append(StageBlock{held.stage, PlaceOf(common, in_stage)}, RoundOf(held).of_stages.back());
          });
    }
  }

  const ReshardEnds& ends_;
  const ShareLayout& layout_;
  const std::vector<size_t> round_of_layer_;
  // By parameter that this rank's share has some of.
  std::map<size_t, int64_t> first_in_share_;
  ReshardRoutes routes_;
};

}  // namespace

ReshardRoutes MakeReshardRoutes(const ReshardEnds& ends, int64_t round_elements) {
  return RouteMaker(ends, round_elements).Make();
}

}  // namespace penstock::worker
