#include "planner/cli/up/elastic_mesh.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/core/planner.h"

namespace penstock::cli {
namespace {

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

absl::StatusOr<int64_t> MakespanOf(v1::JobSpec job, const v1::Mesh& mesh, const v1::Batch& batch) {
  *job.mutable_mesh() = mesh;
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::Planner> planner,
                            core::Planner::Create(job, core::Planner::Explain::kCauseAlone));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, planner->MakePlan(batch));
  return plan.predicted().makespan_ns();
}

}  // namespace

absl::StatusOr<v1::Mesh> FastestMesh(const v1::JobSpec& job, const v1::Batch& batch, uint32_t ranks,
                                     uint32_t least) {
  absl::Status why = absl::ResourceExhaustedError("none has so many");
  std::optional<std::pair<int64_t, v1::Mesh>> fastest;
  for (const v1::Mesh& mesh : Meshes(job.mesh(), batch.samples_size(), ranks, std::max(1U, least))) {
    const absl::StatusOr<int64_t> makespan = MakespanOf(job, mesh, batch);
    if (!makespan.ok()) {
      why = makespan.status();
    } else if (!fastest.has_value() || *makespan < fastest->first) {
      fastest = {*makespan, mesh};
    }
  }
  if (fastest.has_value()) return fastest->second;
  return absl::ResourceExhaustedError(
      absl::StrCat("no mesh of ", least, " to ", ranks, " ranks can train this job: ", why.message()));
}

}  // namespace penstock::cli
