#include "planner/core/strategies/strategy_specs.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/rank_memory.h"
#include "planner/core/contract/ranks_of_profile.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

constexpr int kMostMeshes = 64;

// Degrees that are 0 stand for 1.
bool IsSameMesh(const v1::Mesh& a, const v1::Mesh& b) {
  return a.pipeline() == b.pipeline() && a.data() == b.data() && TensorRanks(a) == TensorRanks(b) &&
         ContextRanks(a) == ContextRanks(b) && ExpertRanks(a) == ExpertRanks(b);
}

absl::Status CheckStrategy(const v1::JobSpec& job, int index) {
  const std::string field = absl::StrCat("job.strategies[", index, "].meshes");
  const v1::Strategy& strategy = job.strategies(index);
  if (strategy.meshes().empty()) return Wrong(field, "is empty; give it one mesh");
  if (strategy.meshes_size() > kMostMeshes)
    return Wrong(field, absl::StrCat(strategy.meshes_size(), " of them; use at most ", kMostMeshes));
  for (int mesh = 0; mesh < strategy.meshes_size(); ++mesh) {
    // So that sums of ranks below are what they seem.
    const uint64_t ranks = RanksOf(strategy.meshes(mesh).mesh());
    if (ranks > RanksOf(job)) {
      return Wrong(absl::StrCat(field, "[", mesh, "].mesh"),
                   absl::StrCat(ranks, " ranks; the job has ", RanksOf(job)));
    }
  }
  if (RanksOf(strategy) == RanksOf(job)) return absl::OkStatus();
  return Wrong(strategy.meshes_size() == 1 ? absl::StrCat(field, "[0].mesh") : field,
               absl::StrCat(RanksOf(strategy), " ranks; the first strategy has ", RanksOf(job),
                            ", and all strategies run on the same"));
}

}  // namespace

int StrategyCount(const v1::JobSpec& job) { return std::max(1, job.strategies_size()); }

int MeshCount(const v1::JobSpec& job, int strategy) {
  return job.strategies().empty() ? 1 : job.strategies(strategy).meshes_size();
}

int FirstRankOf(const v1::JobSpec& job, int strategy, int mesh) {
  uint64_t ranks = 0;
  for (int before = 0; before < mesh; ++before)
    ranks += RanksOf(job.strategies(strategy).meshes(before).mesh());
  return static_cast<int>(ranks);
}

absl::Status CheckStrategies(const v1::JobSpec& job) {
  if (job.strategies().empty()) return absl::OkStatus();
  if (job.strategies_size() > kMostStrategies)
    return Wrong("job.strategies", absl::StrCat(job.strategies_size(), "; use at most ", kMostStrategies));
  if (!job.planning().parameter_shares())
    return Wrong("job.planning.parameter_shares",
                 "a job with strategies needs it: parameters must not live on the stages of one of them");
  if (!job.planning().layers_per_stage().empty())
    return Wrong("job.planning.layers_per_stage",
                 "a job with strategies has it in job.strategies[].meshes[], as each has its own stages");
  for (int i = 0; i < job.strategies_size(); ++i) PENSTOCK_RETURN_IF_ERROR(CheckStrategy(job, i));
  for (const v1::RankMemoryLimit& limit : job.planning().rank_memory_limits())
    if (limit.rank() >= RanksOf(job))
      return Wrong("job.planning.rank_memory_limits",
                   absl::StrCat("rank ", limit.rank(), "; the job has ", RanksOf(job), " ranks"));
  if (IsSameMesh(job.mesh(), job.strategies(0).meshes(0).mesh())) return absl::OkStatus();
  return Wrong("job.mesh", "is another one than job.strategies[0].meshes[0].mesh; make them equal");
}

World WorldOf(const v1::JobSpec& job, int strategy, int mesh) {
  if (MeshCount(job, strategy) == 1) return {};
  return {.first_rank = FirstRankOf(job, strategy, mesh),
          .ranks = static_cast<int32_t>(RanksOf(job.strategies(strategy)))};
}

v1::JobSpec SpecOfMesh(const v1::JobSpec& job, int strategy, int mesh) {
  if (job.strategies().empty()) return job;
  v1::JobSpec spec = job;
  spec.clear_strategies();
  const v1::Strategy& side_by_side = job.strategies(strategy);
  const v1::StrategyMesh& own = side_by_side.meshes(mesh);
  *spec.mutable_mesh() = own.mesh();
  v1::PlanningOptions* planning = spec.mutable_planning();
  *planning->mutable_layers_per_stage() = own.layers_per_stage();
  *planning->mutable_rank_of_stage() = own.rank_of_stage();
  if (side_by_side.meshes_size() == 1) return spec;
  // Weights of shares are those of all ranks: what one has is a part of what all have.
  const auto first_rank = static_cast<int64_t>(FirstRankOf(job, strategy, mesh));
  const auto ranks = static_cast<int64_t>(RanksOf(own.mesh()));
  KeepRanks(first_rank, ranks, spec.mutable_profile());
  KeepRankMemory(first_rank, ranks, planning);
  const double part = static_cast<double>(RanksOf(own.mesh())) / static_cast<double>(RanksOf(side_by_side));
  const double typical =
      planning->typical_batch_size() > 0 ? planning->typical_batch_size() : planning->typical_samples_size();
  planning->set_typical_batch_size(static_cast<uint32_t>(std::ceil(typical * part)));
  return spec;
}

}  // namespace penstock::core
