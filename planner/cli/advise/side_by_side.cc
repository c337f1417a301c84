#include "planner/cli/advise/side_by_side.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/length_ranges.h"
#include "planner/cli/local_planning.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/rank_memory.h"
#include "planner/core/contract/total_layers.h"
#include "planner/core/planner.h"
#include "planner/core/strategies/strategy_proposal.h"

namespace penstock::cli {
namespace {

// Ranges of lengths that the programme distinguishes.
constexpr int kMostRanges = 16;

// Long pipelines differ little from those of a few stages more.
bool IsTriedDepth(uint32_t pipeline) {
  if (pipeline <= 8) return true;
  return pipeline <= 16 ? pipeline % 2 == 0 : pipeline % 4 == 0;
}

bool IsWithin(uint32_t degree, uint32_t most) { return most == 0 || degree <= most; }

// A group that ends inside of a node wherever groups of its size follow each other from a node's beginning.
bool IsInsideNode(uint32_t tensor, const v1::JobSpec& job) {
  const auto node = static_cast<uint32_t>(job.profile().cluster().gpus_per_node());
  return tensor == 1 || node == 0 || node % tensor == 0;
}

// One replica each, those of the fewest ranks first.
std::vector<v1::Mesh> ReplicasOf(const v1::JobSpec& job, uint32_t ranks, const SideBySideLimits& limits) {
  std::vector<v1::Mesh> replicas;
  const uint32_t layers = core::TotalLayers(job.model());
  for (const Candidate& group : StageGroups(job, ranks, limits.given)) {
    if (!IsInsideNode(group.tensor, job) || !IsWithin(group.context, limits.most_context)) continue;
    const uint32_t most = std::min({layers, ranks / (group.tensor * group.context),
                                    core::kMostPipelineRanks / (group.tensor * group.context)});
    for (uint32_t pipeline = 1; pipeline <= most; ++pipeline) {
      const bool given = limits.given.pipeline == pipeline;
      if (!given && (limits.given.pipeline > 0 || !IsTriedDepth(pipeline))) continue;
      if (!IsWithin(pipeline, limits.most_pipeline)) continue;
      replicas.push_back(MakeMesh(pipeline, 1, group.tensor, group.context, group.expert));
    }
  }
  std::ranges::stable_sort(replicas, {}, [](const v1::Mesh& mesh) { return RanksOf(mesh); });
  return replicas;
}

// Nothing: its stages do not fit.
absl::StatusOr<std::optional<core::ReplicaKind>> KindOf(const v1::JobSpec& base, const v1::Mesh& mesh,
                                                        uint32_t ranks, const v1::Batch& lengths) {
  v1::JobSpec job = base;
  *job.mutable_mesh() = mesh;
  // It may be any of the ranks.
  job.mutable_profile()->clear_slow_ranks();
  job.mutable_profile()->clear_slow_links();
  job.mutable_planning()->clear_share_weights();
  core::UseLeastMemory(&job);
  const auto planner = core::Planner::Create(job, core::Planner::Explain::kCauseAlone, core::RunSerially, {},
                                             nullptr, {.ranks = static_cast<int32_t>(ranks)});
  if (!planner.ok() && IsInfeasible(planner.status())) return std::nullopt;
  PENSTOCK_RETURN_IF_ERROR(planner.status());
  core::ReplicaKind kind = {.ranks = static_cast<int>(RanksOf(mesh)),
                            .positions = (*planner)->costs().positions()};
  for (int position = 0; position < kind.positions; ++position) {
    kind.whole_ns =
        std::max(kind.whole_ns, static_cast<double>((*planner)->costs().WholeIterationNs(position)));
  }
  PENSTOCK_ASSIGN_OR_RETURN(kind.of_length, (*planner)->EstimateSamples(lengths, {}));
  return kind;
}

struct Kinds {
  std::vector<v1::Mesh> meshes;
  std::vector<core::ReplicaKind> kinds;
};

// Those that no other can stand in for.
absl::StatusOr<Kinds> MakeKinds(const v1::JobSpec& job, uint32_t ranks, const v1::Batch& lengths,
                                const SideBySideLimits& limits, TaskPool* threads) {
  const std::vector<v1::Mesh> replicas = ReplicasOf(job, ranks, limits);
  std::vector<absl::StatusOr<std::optional<core::ReplicaKind>>> made(replicas.size(), std::nullopt);
  threads->Run(static_cast<int>(replicas.size()),
               [&](int i) { made[i] = KindOf(job, replicas[i], ranks, lengths); });
  Kinds all;
  for (size_t i = 0; i < replicas.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(made[i].status());
    if (!made[i]->has_value()) continue;
    all.meshes.push_back(replicas[i]);
    all.kinds.push_back(**std::move(made[i]));
  }
  Kinds of_use;
  for (const int kind : core::KindsOfUse(all.kinds)) {
    of_use.meshes.push_back(all.meshes[kind]);
    of_use.kinds.push_back(all.kinds[kind]);
  }
  return of_use;
}

// For the mean batch up to each length, and for each batch; those of several meshes alone, each once.
std::vector<core::ProposedStrategy> Propose(const Kinds& kinds, const LengthRanges& ranges,
                                            const core::ProposalLimits& limits, TaskPool* threads) {
  const int lengths = ranges.samples.samples_size();
  const int batches = static_cast<int>(ranges.counts.size());
  std::vector<std::vector<core::ProposedStrategy>> proposed(lengths + batches);
  threads->Run(lengths + batches, [&](int i) {
    const auto counts = i < lengths ? absl::MakeConstSpan(ranges.mean_counts).first(i + 1)
                                    : absl::MakeConstSpan(ranges.counts[i - lengths]);
    proposed[i] = core::ProposeStrategies(kinds.kinds, counts, limits);
  });
  std::vector<core::ProposedStrategy> all;
  for (const std::vector<core::ProposedStrategy>& some : proposed) {
    for (const core::ProposedStrategy& strategy : some) {
      const bool listed = std::ranges::any_of(
          all, [&](const core::ProposedStrategy& other) { return other.meshes == strategy.meshes; });
      if (strategy.meshes.size() > 1 && !listed) all.push_back(strategy);
    }
  }
  return all;
}

// What all batches together take, reckoned.
double SumOver(const core::ProposedStrategy& strategy, const Kinds& kinds, const LengthRanges& ranges) {
  double sum = 0;
  for (const std::vector<double>& counts : ranges.counts)
    sum += core::EndOfStrategy(kinds.kinds, counts, strategy.meshes);
  return sum;
}

v1::Strategy StrategyOf(const core::ProposedStrategy& proposed, const Kinds& kinds) {
  std::vector<v1::Mesh> meshes;
  for (const core::ProposedMesh& mesh : proposed.meshes) {
    meshes.push_back(kinds.meshes[mesh.kind]);
    meshes.back().set_data(static_cast<uint32_t>(mesh.replicas));
  }
  std::ranges::stable_sort(meshes, std::greater(), [](const v1::Mesh& mesh) {
    return std::tuple(GroupRanks(mesh), TensorRanks(mesh), mesh.pipeline());
  });
  v1::Strategy strategy;
  for (const v1::Mesh& mesh : meshes) *strategy.add_meshes()->mutable_mesh() = mesh;
  return strategy;
}

}  // namespace

v1::JobSpec WithParameterShares(v1::JobSpec job) {
  job.clear_strategies();
  v1::PlanningOptions& planning = *job.mutable_planning();
  planning.set_parameter_shares(true);
  planning.set_shard_optimizer_state(false);
  planning.clear_layers_per_stage();
  planning.clear_rank_of_stage();
  return job;
}

absl::StatusOr<std::vector<v1::Strategy>> ProposeSideBySide(const v1::JobSpec& job, uint32_t ranks,
                                                            absl::Span<const v1::Batch> batches,
                                                            const SideBySideLimits& limits,
                                                            TaskPool* threads) {
  std::vector<v1::Strategy> strategies;
  if (limits.given.data > 0 || limits.meshes < 2) return strategies;
  const LengthRanges ranges = RangesOf(batches, kMostRanges);
  if (ranges.samples.samples().empty()) return strategies;
  PENSTOCK_ASSIGN_OR_RETURN(const Kinds kinds, MakeKinds(job, ranks, ranges.samples, limits, threads));
  std::vector<core::ProposedStrategy> proposed =
      Propose(kinds, ranges, {.ranks = static_cast<int>(ranks), .meshes = limits.meshes}, threads);
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < proposed.size(); ++i) order.emplace_back(SumOver(proposed[i], kinds, ranges), i);
  std::ranges::stable_sort(order);
  for (const auto& [sum, i] : order) {
    if (static_cast<int>(strategies.size()) == limits.strategies) break;
    strategies.push_back(StrategyOf(proposed[i], kinds));
  }
  return strategies;
}

}  // namespace penstock::cli
