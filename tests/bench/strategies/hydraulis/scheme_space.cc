#include "tests/bench/strategies/hydraulis/scheme_space.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "common/status/status_macros.h"
#include "planner/core/planner.h"
#include "planner/core/search/schedule_space.h"
#include "tests/bench/strategies/hydraulis/mix_planner.h"

namespace penstock::hydraulis {
namespace {

// Lengths of micro-batches are whole multiples (as in Hydraulis' public code).
constexpr int64_t kTokenStep = 128;
constexpr int64_t kShortest = 256;
// A packed micro-batch may be longer than the longest sample; so many times.
constexpr int64_t kMostLongest = 8;
constexpr int kFittedLengths = 32;

// Solves m x = y for symmetric, positive definite m, by elimination.
std::array<double, 3> Solve(std::array<std::array<double, 4>, 3> rows) {
  for (int pivot = 0; pivot < 3; ++pivot) {
    for (int row = pivot + 1; row < 3; ++row) {
      const double factor = rows[row][pivot] / rows[pivot][pivot];
      for (int column = pivot; column < 4; ++column) rows[row][column] -= factor * rows[pivot][column];
    }
  }
  std::array<double, 3> x = {};
  for (int row = 2; row >= 0; --row) {
    double rest = rows[row][3];
    for (int column = row + 1; column < 3; ++column) rest -= rows[row][column] * x[column];
    x[row] = rest / rows[row][row];
  }
  return x;
}

// Both passes of a sample on the busiest stage, with the least recompute that the job allows.
double BusiestNs(const core::Planner& planner, const core::ScheduleSpace& space, int64_t tokens) {
  const core::CostModel& costs = planner.costs();
  core::TokenSums sums;
  core::AddPacked({.target = static_cast<uint32_t>(tokens), .loss = static_cast<uint32_t>(tokens - 1)},
                  &sums);
  core::LayerCosts layers;
  if (!costs.Layers(sums, &layers)) return 0;
  double most = 0;
  for (int stage = 0; stage < costs.stages(); ++stage) {
    const core::StageRecompute recompute =
        core::RecomputeAtLevel(costs.stage(stage), space.levels(stage).lowest, costs.has_selective());
    most = std::max(most, static_cast<double>(costs.ForwardNs(stage, layers) +
                                              costs.BackwardNs(stage, layers, recompute)));
  }
  return most;
}

// Whether 1F1B has room for micro-batches of so many tokens, in samples that are as long as can be.
bool HasRoom(const core::Planner& planner, int64_t tokens, int64_t longest) {
  v1::Batch batch;
  MicroBatches micro_batches(2 * static_cast<size_t>(planner.costs().stages()));
  for (std::vector<uint32_t>& micro_batch : micro_batches) {
    for (int64_t left = tokens; left > 0; left -= longest) {
      micro_batch.push_back(static_cast<uint32_t>(batch.samples_size()));
      batch.add_samples()->set_target_tokens(static_cast<uint32_t>(std::min(left, longest)));
    }
  }
  return PlanOnMesh(planner, batch, {micro_batches}).ok();
}

int64_t MostTokens(const core::Planner& planner, int64_t longest) {
  int64_t fits = 0, too_many = kMostLongest * longest / kTokenStep + 1;
  while (fits + 1 < too_many) {
    const int64_t middle = (fits + too_many) / 2;
    (HasRoom(planner, middle * kTokenStep, longest) ? fits : too_many) = middle;
  }
  return fits * kTokenStep;
}

void Fit(const core::Planner& planner, int64_t longest, FittedScheme* fitted) {
  const core::ScheduleSpace space(planner.costs(), planner.job(),
                                  core::AvailableBytes(planner.job(), planner.costs()));
  std::vector<double> lengths, ns;
  const auto most = static_cast<double>(std::min(longest, fitted->scheme.most_tokens));
  for (int i = 0; i < kFittedLengths; ++i) {
    // From the shortest to the longest, by equal factors.
    const double length = std::round(kShortest * std::pow(most / kShortest, i / (kFittedLengths - 1.0)));
    lengths.push_back(length);
    ns.push_back(BusiestNs(planner, space, static_cast<int64_t>(length)));
  }
  FitCosts(lengths, ns, fitted);
}

}  // namespace

void FitCosts(absl::Span<const double> lengths, absl::Span<const double> ns, FittedScheme* fitted) {
  const double scale = *std::ranges::max_element(lengths);
  std::array<std::array<double, 4>, 3> normal = {};
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double s = lengths[i] / scale;
    const std::array<double, 3> parts = {s * s / ns[i], s / ns[i], 1 / ns[i]};
    for (int row = 0; row < 3; ++row) {
      for (int column = 0; column < 3; ++column) normal[row][column] += parts[row] * parts[column];
      normal[row][3] += parts[row];
    }
  }
  const std::array<double, 3> costs = Solve(normal);
  Scheme& scheme = fitted->scheme;
  scheme.square_ns = costs[0] / scale / scale;
  scheme.token_ns = costs[1] / scale;
  scheme.once_ns = costs[2];
  fitted->worst_relative_error = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double fit = scheme.AloneNs(static_cast<int64_t>(lengths[i]));
    fitted->worst_relative_error = std::max(fitted->worst_relative_error, std::abs(fit / ns[i] - 1));
  }
}

absl::StatusOr<std::vector<FittedScheme>> SchemesOf(const v1::JobSpec& job, int ranks, int64_t longest) {
  std::set<uint32_t> tensors = {1};
  for (const v1::LayerCost& layer : job.profile().layers())
    for (const v1::TensorCost& tensor : layer.tensor()) tensors.insert(tensor.degree());
  std::vector<FittedScheme> schemes;
  for (const uint32_t tensor : tensors) {
    for (uint32_t pipeline = 1; tensor * pipeline <= static_cast<uint32_t>(ranks); pipeline *= 2) {
      if (pipeline > job.model().layers()) break;
      for (const v1::Recompute recompute : {v1::RECOMPUTE_NONE, v1::RECOMPUTE_FULL}) {
        v1::JobSpec spec = job;
        spec.mutable_mesh()->set_tensor(tensor);
        spec.mutable_mesh()->set_pipeline(pipeline);
        spec.mutable_mesh()->set_data(1);
        spec.mutable_planning()->set_recompute(recompute);
        // Without stage groups the job must be sound; with these the degree may not divide the model.
        const absl::Status sound = core::Planner::CheckJob(spec);
        if (!sound.ok() && tensor > 1) continue;
        PENSTOCK_RETURN_IF_ERROR(sound);
        const auto planner =
            core::Planner::Create(spec, core::Planner::Explain::kCauseAlone, core::RunSerially, {}, nullptr,
                                  {.first_rank = 0, .ranks = ranks});
        // Its parameters do not fit.
        if (!planner.ok()) continue;
        FittedScheme fitted;
        fitted.scheme = {.tensor = static_cast<int>(tensor),
                         .pipeline = static_cast<int>(pipeline),
                         .recomputes = recompute == v1::RECOMPUTE_FULL};
        fitted.scheme.most_tokens = MostTokens(**planner, longest);
        if (fitted.scheme.most_tokens <= kShortest) continue;
        Fit(**planner, longest, &fitted);
        schemes.push_back(fitted);
      }
    }
  }
  return schemes;
}

}  // namespace penstock::hydraulis
