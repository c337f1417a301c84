#include "planner/core/stages/layout_judge.h"

#include <algorithm>
#include <utility>

#include "planner/core/search/policies.h"

namespace penstock::core {
namespace {

// Samples of a batch that is planned, and batches.
constexpr size_t kMostSamples = 256;
constexpr size_t kFewestSamples = 16;
constexpr size_t kMostBatches = 8;
// Share of a rank's memory that weights, gradients and optimizer state may take, so that micro-batches have
// room.
constexpr double kStaticShare = 0.85;
// Micro-batches of a typical replica for each rank, for the balance.
constexpr size_t kMicroBatchesPerRank = 2;

size_t TypicalBatchSize(const Job& job) {
  return job.typical_batch_size > 0 ? job.typical_batch_size : job.typical_samples.size();
}

// Replicas that are planned: all where a batch is small, else one for its share.
int32_t PlannedReplicas(const Job& job) { return TypicalBatchSize(job) <= kMostSamples ? job.replicas : 1; }

StageLayout EvenLayout(const Job& job, std::vector<int32_t> placement) {
  uint32_t layers = 0;
  for (const Stage& stage : job.stages) layers += static_cast<uint32_t>(stage.layers());
  const auto stages = static_cast<uint32_t>(placement.size());
  StageLayout layout;
  layout.layers.assign(stages, layers / stages);
  for (uint32_t stage = 0; stage < layers % stages; ++stage) ++layout.layers[stage];
  layout.rank_of_stage = std::move(placement);
  return layout;
}

// `count` of the samples, evenly spaced; `part` of `parts` begins where the others leave gaps.
std::vector<SampleTokens> EverySoMany(const std::vector<SampleTokens>& samples, size_t count, size_t part,
                                      size_t parts) {
  std::vector<SampleTokens> chosen;
  chosen.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    chosen.push_back(samples[(i * samples.size() + part * samples.size() / parts) / count]);
  }
  return chosen;
}

// Of a batch, what a replica gets after balancing: its share of long samples and of short ones.
std::vector<SampleTokens> BalancedShare(std::vector<SampleTokens> batch, size_t count) {
  std::stable_sort(batch.begin(), batch.end(), [](const SampleTokens& a, const SampleTokens& b) {
    return a.source + a.target < b.source + b.target;
  });
  return EverySoMany(batch, count, 1, 2);
}

// In turn a batch as the samples come, and one of samples evenly spaced over all, in case that they come in
// the order of their lengths.
std::vector<std::vector<SampleTokens>> TypicalBatches(const Job& job) {
  const std::vector<SampleTokens>& all = job.typical_samples;
  if (all.empty()) {
    const uint32_t quarter = std::max<uint32_t>(1, job.max_sequence_length / 4);
    const bool t5 = job.architecture == Architecture::kT5;
    return {std::vector<SampleTokens>(kFewestSamples * job.pipeline, {t5 ? quarter : 0, quarter, quarter})};
  }
  const size_t size = std::min(TypicalBatchSize(job), all.size());
  const size_t share = size * PlannedReplicas(job) / job.replicas;
  const size_t count = std::min(std::clamp(share, kFewestSamples, kMostSamples), size);
  const size_t whole = all.size() / size;
  std::vector<std::vector<SampleTokens>> batches;
  for (size_t batch = 0; batch < std::min(whole, kMostBatches / 2); ++batch) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(batch * size);
    batches.push_back(BalancedShare({begin, begin + static_cast<std::ptrdiff_t>(size)}, count));
    // Those are the same where there is one alone.
    if (whole > 1) batches.push_back(BalancedShare(EverySoMany(all, size, batch, whole), count));
  }
  return batches;
}

}  // namespace

LayoutJudge::LayoutJudge(const Profile& profile, const Job& job)
    : profile_(profile), job_(job), batches_(TypicalBatches(job)) {}

TokenSums LayoutJudge::TypicalMicroBatch() const {
  const std::vector<SampleTokens>& batch = batches_.front();
  const size_t count = std::max<size_t>(1, batch.size() / (kMicroBatchesPerRank * job_.pipeline));
  TokenSums sums;
  for (size_t i = 0; i < count; ++i) AddPacked(batch[i * batch.size() / count], &sums);
  // A profile without a closed form knows rectangles alone.
  if (profile_.has_closed_form()) return sums;
  return PaddedSums(1, static_cast<int32_t>(sums.source / static_cast<double>(count)),
                    static_cast<int32_t>(sums.target / static_cast<double>(count)),
                    sums.loss / static_cast<double>(count));
}

StageLayout LayoutJudge::Balanced(std::vector<int32_t> placement) const {
  const auto bytes = static_cast<int64_t>(static_cast<double>(job_.memory_limit_bytes) * kStaticShare);
  return BalanceStages(profile_, job_, TypicalMicroBatch(), bytes, Even(std::move(placement)));
}

StageLayout LayoutJudge::Even(std::vector<int32_t> placement) const {
  return EvenLayout(job_, std::move(placement));
}

int64_t LayoutJudge::BusiestRank(const StageLayout& layout) const {
  const CostModel costs(profile_, WithStages(job_, layout));
  LayerCosts layers;
  costs.Layers(TypicalMicroBatch(), &layers);
  const std::vector<int64_t> times = RankTimes(costs, layers);
  return *std::max_element(times.begin(), times.end());
}

int64_t LayoutJudge::Makespan(const StageLayout& layout, size_t batch, Effort effort) const {
  Job job = WithStages(job_, layout);
  // Optimizer state may be divided over all replicas.
  const CostModel costs(profile_, job);
  job.replicas = PlannedReplicas(job);
  job.effort = effort;
  const std::vector<int64_t> available = AvailableBytes(job, costs);
  if (*std::min_element(available.begin(), available.end()) <= 0) return kInfeasibleNs;
  return PlanByPolicy(ScheduleSpace(costs, job, available), job, batches_[batch], RunSerially).makespan;
}

}  // namespace penstock::core
