#include "planner/cli/up/elastic_mesh.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/side_by_side.h"
#include "planner/cli/strategy_list.h"
#include "planner/core/strategies/strategy_planner.h"

namespace penstock::cli {
namespace {

// That are planned.
constexpr int kMostSideBySide = 4;
// Meshes side by side must be faster by this share: one mesh is simpler, and its costs follow what is
// measured.
constexpr double kLeastGain = 0.01;

// n, n / 2, n / 4, ... 1.
std::vector<uint32_t> Halves(uint32_t degree) {
  std::vector<uint32_t> halves;
  for (uint32_t d = std::max(1U, degree); d >= 1; d /= 2) halves.push_back(d);
  return halves;
}

// The largest first.
std::vector<v1::Mesh> Meshes(const v1::Mesh& full, int samples, uint32_t ranks, uint32_t least) {
  std::vector<v1::Mesh> meshes;
  const uint32_t tensor = std::max(1U, full.tensor());
  for (const uint32_t pipeline : Halves(full.pipeline())) {
    for (const uint32_t context : Halves(full.context())) {
      const uint32_t replicas =
          std::min(ranks / (pipeline * context * tensor), static_cast<uint32_t>(samples));
      if (replicas == 0) continue;
      // Both are a power of two times the tensor ranks.
      const uint32_t expert = std::min(ExpertRanks(full), context * tensor);
      const v1::Mesh mesh = MakeMesh(pipeline, replicas, tensor, context, expert);
      if (RanksOf(mesh) >= least) meshes.push_back(mesh);
    }
  }
  std::ranges::stable_sort(meshes, std::greater(), [](const v1::Mesh& mesh) { return RanksOf(mesh); });
  return meshes;
}

absl::StatusOr<int64_t> MakespanOf(v1::JobSpec job, const v1::Batch& batch) {
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::StrategyPlanner> planner,
                            core::StrategyPlanner::Create(job, core::Planner::Explain::kCauseAlone));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, planner->MakePlan(batch));
  return plan.predicted().makespan_ns();
}

v1::JobSpec OnMesh(v1::JobSpec job, const v1::Mesh& mesh) {
  job.clear_strategies();
  job.mutable_planning()->clear_share_weights();
  *job.mutable_mesh() = mesh;
  return job;
}

v1::Strategy StrategyOf(const v1::Mesh& mesh) {
  v1::Strategy strategy;
  *strategy.add_meshes()->mutable_mesh() = mesh;
  return strategy;
}

template <typename Way>
struct Timed {
  int64_t makespan_ns = std::numeric_limits<int64_t>::max();
  Way way;
};

absl::StatusOr<Timed<v1::Mesh>> FastestOf(const v1::JobSpec& job, const v1::Batch& batch, uint32_t ranks,
                                          uint32_t least) {
  absl::Status why = absl::ResourceExhaustedError("none has so many");
  std::optional<Timed<v1::Mesh>> fastest;
  for (const v1::Mesh& mesh : Meshes(job.mesh(), batch.samples_size(), ranks, std::max(1U, least))) {
    const absl::StatusOr<int64_t> makespan = MakespanOf(OnMesh(job, mesh), batch);
    if (!makespan.ok()) {
      why = makespan.status();
    } else if (!fastest.has_value() || *makespan < fastest->makespan_ns) {
      fastest = {*makespan, mesh};
    }
  }
  if (fastest.has_value()) return *fastest;
  return absl::ResourceExhaustedError(
      absl::StrCat("no mesh of ", least, " to ", ranks, " ranks can train this job: ", why.message()));
}

// Of meshes side by side; without any meshes where there is none.
absl::StatusOr<Timed<v1::Strategy>> FastestSideBySide(const v1::JobSpec& given, const v1::Batch& batch,
                                                      uint32_t ranks) {
  v1::JobSpec job = WithParameterShares(given);
  job.mutable_planning()->clear_share_weights();
  SideBySideLimits limits = {.most_pipeline = given.mesh().pipeline(),
                             .most_context = ContextRanks(given.mesh()),
                             .strategies = kMostSideBySide};
  limits.given.tensor = TensorRanks(given.mesh());
  TaskPool threads(1);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Strategy> strategies,
                            ProposeSideBySide(job, ranks, {&batch, 1}, limits, &threads));
  Timed<v1::Strategy> fastest;
  for (const v1::Strategy& strategy : strategies) {
    SetStrategies({strategy}, &job);
    const absl::StatusOr<int64_t> makespan = MakespanOf(job, batch);
    if (makespan.ok() && *makespan < fastest.makespan_ns) fastest = {*makespan, strategy};
  }
  return fastest;
}

}  // namespace

absl::StatusOr<v1::Mesh> FastestMesh(const v1::JobSpec& job, const v1::Batch& batch, uint32_t ranks,
                                     uint32_t least) {
  PENSTOCK_ASSIGN_OR_RETURN(const Timed<v1::Mesh> fastest, FastestOf(job, batch, ranks, least));
  return fastest.way;
}

absl::StatusOr<v1::Strategy> FastestStrategy(const v1::JobSpec& job, const v1::Batch& batch, uint32_t ranks,
                                             uint32_t least) {
  const absl::StatusOr<Timed<v1::Mesh>> mesh = FastestOf(job, batch, ranks, least);
  if (ranks < least) return mesh.status();
  PENSTOCK_ASSIGN_OR_RETURN(const Timed<v1::Strategy> side_by_side, FastestSideBySide(job, batch, ranks));
  if (side_by_side.way.meshes().empty() && !mesh.ok()) return mesh.status();
  if (side_by_side.way.meshes().empty()) return StrategyOf(mesh->way);
  if (!mesh.ok()) return side_by_side.way;
  const bool pays = static_cast<double>(side_by_side.makespan_ns) <
                    (1 - kLeastGain) * static_cast<double>(mesh->makespan_ns);
  return pays ? side_by_side.way : StrategyOf(mesh->way);
}

}  // namespace penstock::cli
