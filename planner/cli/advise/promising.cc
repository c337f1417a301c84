#include "planner/cli/advise/promising.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/core/planner.h"

namespace penstock::cli {
namespace {

// As many are all looked at in the tournament.
constexpr size_t kFewMeshes = 12;
// Stages that are chosen may be so much better than even ones, of which the bound is.
constexpr double kBetterStages = 1.05;
// A mesh whose plan takes so many times the best is left out. Its stages may be chosen better; its other
// ways, of another policy or of 1F1B, seldom make up for more than that.
constexpr double kHopeless = 1.2;
constexpr double kHopelessOtherWays = 1.1;

using MeshKey = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

MeshKey KeyOf(const Candidate& candidate) {
  return {candidate.tensor, candidate.context, candidate.pipeline, candidate.data};
}

// A mesh, and one way to train on it.
struct Mesh {
  Candidate way;
  std::unique_ptr<core::Planner> planner;
  int64_t bound_ns = 0;
  double makespan_ns = std::numeric_limits<double>::infinity();
};

// The last way of each mesh: any schedule, and a divided state.
std::vector<Mesh> MeshesOf(const std::vector<Candidate>& candidates) {
  std::vector<Mesh> meshes;
  for (const Candidate& candidate : candidates) {
    const auto found = std::find_if(meshes.begin(), meshes.end(),
                                    [&](const Mesh& mesh) { return KeyOf(mesh.way) == KeyOf(candidate); });
    if (found == meshes.end()) {
      meshes.emplace_back().way = candidate;
    } else if (candidate.policy == found->way.policy) {
      found->way = candidate;
    }
  }
  for (Mesh& mesh : meshes) mesh.way.stage_split = v1::STAGE_SPLIT_EVEN;
  return meshes;
}

// Fills in the bound. Where nothing fits it is 0.
absl::Status Bound(const v1::JobSpec& base, const v1::Batch& batch, Mesh* mesh) {
  auto planner =
      core::Planner::Create(MakeJob(base, mesh->way, v1::EFFORT_FAST), core::Planner::Explain::kCauseAlone);
  if (!planner.ok()) return IsInfeasible(planner.status()) ? absl::OkStatus() : planner.status();
  const absl::StatusOr<int64_t> bound = (*planner)->LowerBoundNs(batch);
  if (!bound.ok()) return IsInfeasible(bound.status()) ? absl::OkStatus() : bound.status();
  mesh->bound_ns = *bound;
  mesh->planner = *std::move(planner);
  return absl::OkStatus();
}

// Plans on one mesh after the other, as long as a mesh may be the best.
absl::Status PlanInOrder(const v1::Batch& batch, TaskPool* pool, std::vector<Mesh>* meshes) {
  double best = std::numeric_limits<double>::infinity();
  for (Mesh& mesh : *meshes) {
    if (mesh.planner == nullptr || static_cast<double>(mesh.bound_ns) > best * kBetterStages) continue;
    const absl::StatusOr<v1::Plan> plan = PlanAndCheck(*mesh.planner, batch, pool->AsFunction());
    if (!plan.ok() && !IsInfeasible(plan.status())) return plan.status();
    if (!plan.ok()) continue;
    mesh.makespan_ns = static_cast<double>(plan->predicted().makespan_ns());
    best = std::min(best, mesh.makespan_ns);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Promising> FindPromising(const v1::JobSpec& base, const std::vector<Candidate>& candidates,
                                        const v1::Batch& batch, TaskPool* pool) {
  std::vector<Mesh> meshes = MeshesOf(candidates);
  if (meshes.size() <= kFewMeshes) return Promising{.kept = candidates, .left_out = {}};
  std::vector<absl::Status> statuses(meshes.size());
  pool->Run(static_cast<int>(meshes.size()), [&](int i) { statuses[i] = Bound(base, batch, &meshes[i]); });
  for (const absl::Status& status : statuses) PENSTOCK_RETURN_IF_ERROR(status);
  std::stable_sort(meshes.begin(), meshes.end(),
                   [](const Mesh& a, const Mesh& b) { return a.bound_ns < b.bound_ns; });
  PENSTOCK_RETURN_IF_ERROR(PlanInOrder(batch, pool, &meshes));
  double best = std::numeric_limits<double>::infinity();
  for (const Mesh& mesh : meshes) best = std::min(best, mesh.makespan_ns);
  const auto is_kept = [&](const Candidate& candidate) {
    const auto mesh = std::find_if(meshes.begin(), meshes.end(),
                                   [&](const Mesh& one) { return KeyOf(one.way) == KeyOf(candidate); });
    const bool same_way = candidate.policy == mesh->way.policy && candidate.schedule == mesh->way.schedule;
    return mesh->planner == nullptr ||
           mesh->makespan_ns <= best * (same_way ? kHopeless : kHopelessOtherWays);
  };
  Promising promising;
  for (const Candidate& candidate : candidates) {
    (is_kept(candidate) ? promising.kept : promising.left_out).push_back(candidate);
  }
  return promising;
}

}  // namespace penstock::cli
