#include "planner/core/strategies/strategy_specs.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

constexpr int kMostStrategies = 64;

// Degrees that are 0 stand for 1.
bool IsSameMesh(const v1::Mesh& a, const v1::Mesh& b) {
  return a.pipeline() == b.pipeline() && a.data() == b.data() && TensorRanks(a) == TensorRanks(b) &&
         ContextRanks(a) == ContextRanks(b) && ExpertRanks(a) == ExpertRanks(b);
}

absl::Status CheckStrategy(const v1::JobSpec& job, int index) {
  const std::string field = absl::StrCat("job.strategies[", index, "].meshes");
  const v1::Strategy& strategy = job.strategies(index);
  if (strategy.meshes().empty()) return Wrong(field, "is empty; give it one mesh");
  if (strategy.meshes_size() > 1)
    return absl::UnimplementedError(absl::StrCat(field, ": ", strategy.meshes_size(),
                                                 " of them; this version runs strategies of one mesh"));
  const uint64_t ranks = RanksOf(strategy.meshes(0).mesh());
  if (ranks == RanksOf(job.mesh())) return absl::OkStatus();
  return Wrong(absl::StrCat(field, "[0].mesh"),
               absl::StrCat(ranks, " ranks; job.mesh has ", RanksOf(job.mesh()),
                            ", and all strategies run on the same"));
}

}  // namespace

int StrategyCount(const v1::JobSpec& job) { return std::max(1, job.strategies_size()); }

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
  if (IsSameMesh(job.mesh(), job.strategies(0).meshes(0).mesh())) return absl::OkStatus();
  return Wrong("job.mesh", "is another one than job.strategies[0].meshes[0].mesh; make them equal");
}

v1::JobSpec SpecOfStrategy(const v1::JobSpec& job, int strategy) {
  if (job.strategies().empty()) return job;
  v1::JobSpec spec = job;
  spec.clear_strategies();
  const v1::StrategyMesh& mesh = job.strategies(strategy).meshes(0);
  *spec.mutable_mesh() = mesh.mesh();
  *spec.mutable_planning()->mutable_layers_per_stage() = mesh.layers_per_stage();
  *spec.mutable_planning()->mutable_rank_of_stage() = mesh.rank_of_stage();
  return spec;
}

}  // namespace penstock::core
