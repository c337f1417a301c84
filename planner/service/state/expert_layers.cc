#include "planner/service/state/expert_layers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "common/mesh/mesh_ranks.h"

namespace penstock {
namespace {

using RankReports = std::vector<store::v1::IterationReported>;

// What is fullest in each of some groups, and what the mean in each is, added. Sums are floating point:
// whatever a rank reports, they do not overflow.
struct Load {
  double fullest = 0;
  double mean = 0;

  void Add(double fullest_of_group, double mean_of_group) {
    fullest += fullest_of_group;
    mean += mean_of_group;
  }
  double ratio() const { return mean > 0 ? fullest / mean : 0; }
};

struct LayerLoads {
  double rows = 0;
  // Of groups of several ranks.
  Load ranks;
  Load experts;
};

// How many ranks divide experts, by replica.
std::vector<uint32_t> ExpertRanksByReplica(const v1::JobSpec& job, uint32_t strategy) {
  if (job.strategies().empty()) return std::vector<uint32_t>(job.mesh().data(), ExpertRanks(job.mesh()));
  std::vector<uint32_t> ranks;
  if (strategy >= static_cast<uint32_t>(job.strategies_size())) return ranks;
  for (const v1::StrategyMesh& one : job.strategies(static_cast<int>(strategy)).meshes())
    ranks.insert(ranks.end(), one.mesh().data(), ExpertRanks(one.mesh()));
  return ranks;
}

// Of the layers with experts of one iteration; `Add` takes the stages of each replica from the lowest up.
class LayersOfIteration {
 public:
  LayersOfIteration(const v1::ModelSpec& model, const RankReports& reports)
      : experts_(model.experts()), dense_(model.dense_layers().begin(), model.dense_layers().end()) {
    for (const store::v1::IterationReported& report : reports) reports_[report.rank()] = &report;
  }

  // The next stage of a replica, whose layers follow `layers_below`. False: a rank has not reported them.
  bool Add(const v1::StageTopology& stage, uint32_t layers_below, uint32_t expert_ranks) {
    for (uint32_t layer = layers_below + 1; layer <= layers_below + stage.decoder_layers(); ++layer) {
      if (dense_.contains(layer)) continue;
      for (int first = 0; first < stage.ranks_size(); first += static_cast<int>(expert_ranks)) {
        const int end = std::min(first + static_cast<int>(expert_ranks), stage.ranks_size());
        if (!AddGroup({stage.ranks().begin() + first, stage.ranks().begin() + end}, loads_[layer]))
          return false;
      }
    }
    return true;
  }

  // Whether nothing is left that a rank has reported.
  bool TookAll() const {
    return std::all_of(reports_.begin(), reports_.end(), [&](const auto& entry) {
      const auto taken = taken_.find(entry.first);
      return entry.second->expert_rows_size() == (taken == taken_.end() ? 0 : taken->second);
    });
  }

  std::vector<v1::ExpertLayerLoad> Loads() const {
    std::vector<v1::ExpertLayerLoad> loads;
    for (const auto& [layer, of_layer] : loads_) {
      if (of_layer.rows == 0) continue;
      v1::ExpertLayerLoad& load = loads.emplace_back();
      load.set_layer(layer);
      load.set_fullest_rank(of_layer.ranks.ratio());
      if (tell_experts_) load.set_fullest_expert(of_layer.experts.ratio());
    }
    return loads;
  }

 private:
  // Of ranks that have all experts of a layer once, the next layer of each.
  bool AddGroup(const std::vector<uint32_t>& ranks, LayerLoads& loads) {
    double all = 0;
    double fullest_rank = 0;
    double fullest_expert = 0;
    for (const uint32_t rank : ranks) {
      const auto found = reports_.find(rank);
      const int place = taken_[rank]++;
      if (found == reports_.end() || place >= found->second->expert_rows_size()) return false;
      const store::v1::IterationReported& report = *found->second;
      const auto rows = static_cast<double>(report.expert_rows(place));
      all += rows;
      fullest_rank = std::max(fullest_rank, rows);
      tell_experts_ &= place < report.fullest_expert_rows_size();
      if (tell_experts_)
        fullest_expert = std::max(fullest_expert, static_cast<double>(report.fullest_expert_rows(place)));
    }
    loads.rows += all;
    if (ranks.size() > 1) loads.ranks.Add(fullest_rank, all / static_cast<double>(ranks.size()));
    loads.experts.Add(fullest_expert, all / experts_);
    return true;
  }

  const double experts_;
  const std::set<uint32_t> dense_;
  std::map<uint32_t, const store::v1::IterationReported*> reports_;
  // Layers of each rank that were taken.
  std::map<uint32_t, int> taken_;
  std::map<uint32_t, LayerLoads> loads_;
  bool tell_experts_ = true;
};

}  // namespace

std::vector<v1::ExpertLayerLoad> ExpertLayersOf(const v1::JobSpec& job, const v1::Topology& topology,
                                                uint32_t strategy, const RankReports& reports) {
  if (job.model().experts() == 0) return {};
  const std::vector<uint32_t> expert_ranks = ExpertRanksByReplica(job, strategy);
  if (static_cast<int>(expert_ranks.size()) != topology.replicas_size()) return {};
  LayersOfIteration layers(job.model(), reports);
  for (int replica = 0; replica < topology.replicas_size(); ++replica) {
    uint32_t below = 0;
    for (const v1::StageTopology& stage : topology.replicas(replica).stages()) {
      if (!layers.Add(stage, below, expert_ranks[static_cast<size_t>(replica)])) return {};
      below += stage.decoder_layers();
    }
  }
  return layers.TookAll() ? layers.Loads() : std::vector<v1::ExpertLayerLoad>();
}

}  // namespace penstock
