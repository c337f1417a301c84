#include "planner/cli/up/elastic_mesh.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/side_by_side.h"
#include "planner/cli/advise/strategy_pool.h"
#include "planner/core/contract/rank_memory.h"

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

v1::Strategy StrategyOf(const v1::Mesh& mesh) {
  v1::Strategy strategy;
  *strategy.add_meshes()->mutable_mesh() = mesh;
  return strategy;
}

// Those with degrees of the run's mesh, which may leave ranks idle; experts are divided by fewer ranks where
// a stage group has no more.
void AddWithItsDegrees(const v1::Mesh& full, uint32_t samples, uint32_t ranks, uint32_t least,
                       std::vector<v1::Strategy>* strategies) {
  const uint32_t tensor = std::max(1U, full.tensor());
  for (const uint32_t pipeline : Halves(full.pipeline())) {
    for (const uint32_t context : Halves(full.context())) {
      const uint32_t replicas = std::min(ranks / (pipeline * context * tensor), samples);
      if (replicas == 0) continue;
      // Both are a power of two times the tensor ranks.
      const uint32_t expert = std::min(ExpertRanks(full), context * tensor);
      const v1::Mesh mesh = MakeMesh(pipeline, replicas, tensor, context, expert);
      if (RanksOf(mesh) >= least) strategies->push_back(StrategyOf(mesh));
    }
  }
}

Given GivenBy(const v1::JobSpec& job) {
  Given given;
  if (job.model().experts() > 0) given.expert = ExpertRanks(job.mesh());
  return given;
}

// What is said of ranks by their numbers is of others now.
v1::JobSpec OfFewerRanks(v1::JobSpec job) {
  job.clear_strategies();
  job.mutable_planning()->clear_share_weights();
  core::UseLeastMemory(&job);
  job.mutable_profile()->clear_slow_ranks();
  job.mutable_profile()->clear_slow_links();
  return job;
}

v1::JobSpec WithoutStages(v1::JobSpec job) {
  job.mutable_planning()->clear_layers_per_stage();
  job.mutable_planning()->clear_rank_of_stage();
  return job;
}

// Stages that the job has are those of meshes as deep as its own.
absl::StatusOr<StrategyAlone> FastestWithStages(const v1::JobSpec& job, std::vector<v1::Strategy> strategies,
                                                absl::Span<const v1::Batch> batches, TaskPool* threads) {
  if (job.planning().layers_per_stage().empty()) return FastestAlone(job, strategies, batches, threads);
  // Not std::ranges', whose subrange clang 14 cannot compile with this standard library.
  const auto others =
      std::stable_partition(strategies.begin(), strategies.end(), [&](const v1::Strategy& strategy) {
        return strategy.meshes(0).mesh().pipeline() == job.mesh().pipeline();
      });
  const auto as_deep = static_cast<size_t>(others - strategies.begin());
  if (as_deep == 0) return FastestAlone(WithoutStages(job), strategies, batches, threads);
  if (others == strategies.end()) return FastestAlone(job, strategies, batches, threads);
  const absl::Span<const v1::Strategy> all = strategies;
  absl::StatusOr<StrategyAlone> with = FastestAlone(job, all.first(as_deep), batches, threads);
  absl::StatusOr<StrategyAlone> without =
      FastestAlone(WithoutStages(job), all.subspan(as_deep), batches, threads);
  if (!with.ok() || (without.ok() && without->mean_ns < with->mean_ns)) return without;
  return with;
}

absl::StatusOr<StrategyAlone> FastestMesh(const v1::JobSpec& job, absl::Span<const v1::Batch> batches,
                                          const RanksThatAreLeft& left, TaskPool* threads) {
  uint32_t samples = 0;
  for (const v1::Batch& batch : batches)
    samples = std::max(samples, static_cast<uint32_t>(batch.samples_size()));
  std::vector<v1::Strategy> strategies;
  absl::StatusOr<std::vector<v1::Strategy>> all = SingleMeshes(job, left.ranks, samples, GivenBy(job));
  if (all.ok()) strategies = *std::move(all);
  AddWithItsDegrees(job.mesh(), samples, left.ranks, left.least, &strategies);
  return FastestWithStages(job, std::move(strategies), batches, threads);
}

// Nothing: none is reckoned to be fast, or can be planned.
absl::StatusOr<std::optional<StrategyAlone>> FastestSideBySide(const v1::JobSpec& given,
                                                               absl::Span<const v1::Batch> batches,
                                                               uint32_t ranks, TaskPool* threads) {
  const v1::JobSpec job = WithParameterShares(given);
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<v1::Strategy> strategies,
      ProposeSideBySide(job, ranks, batches, {.given = GivenBy(given), .strategies = kMostSideBySide},
                        threads));
  if (strategies.empty()) return std::nullopt;
  absl::StatusOr<StrategyAlone> fastest = FastestAlone(job, strategies, batches, threads);
  if (absl::IsResourceExhausted(fastest.status())) return std::nullopt;
  PENSTOCK_RETURN_IF_ERROR(fastest.status());
  return *std::move(fastest);
}

}  // namespace

absl::StatusOr<v1::Strategy> FastestStrategy(const v1::JobSpec& job, absl::Span<const v1::Batch> batches,
                                             const RanksThatAreLeft& left,
                                             const std::function<void(const std::string&)>& say) {
  const auto none = [&](const absl::Status& why) {
    return absl::ResourceExhaustedError(absl::StrCat("no mesh of ", left.least, " to ", left.ranks,
                                                     " ranks can train this job: ", why.message()));
  };
  if (left.ranks < left.least) return none(absl::ResourceExhaustedError("none has so many"));
  TaskPool threads(DefaultThreads());
  const v1::JobSpec fewer = OfFewerRanks(job);
  const absl::StatusOr<StrategyAlone> mesh = FastestMesh(fewer, batches, left, &threads);
  absl::StatusOr<std::optional<StrategyAlone>> side_by_side = std::nullopt;
  if (left.side_by_side) side_by_side = FastestSideBySide(fewer, batches, left.ranks, &threads);
  if (!side_by_side.ok()) {
    say(absl::StrCat("meshes side by side were not compared: ", side_by_side.status().message()));
    side_by_side = std::nullopt;
  }
  if (!mesh.ok() && !side_by_side->has_value()) return none(mesh.status());
  if (!mesh.ok()) return (*side_by_side)->strategy;
  const bool pays = side_by_side->has_value() && (*side_by_side)->mean_ns < (1 - kLeastGain) * mesh->mean_ns;
  return pays ? (*side_by_side)->strategy : mesh->strategy;
}

}  // namespace penstock::cli
