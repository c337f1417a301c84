#include "planner/core/stages/layout_judge.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "planner/core/fit/plan_in_memory.h"
#include "planner/core/stages/group_as_rank.h"

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
int32_t PlannedReplicas(const Job& job) {
  return TypicalBatchSize(job) <= kMostSamples ? job.topology.replicas() : 1;
}

// Replicas that are left have at every position no more room than any had.
void KeepReplicas(int32_t replicas, const CostModel& costs, Job* job) {
  if (!job->memory_limits.alike() && replicas < job->topology.replicas()) {
    const MemoryRoom room = AvailableBytes(*job, costs);
    std::vector<int64_t> of_ranks;
    for (int rank = 0; rank < job->topology.ranks(); ++rank)
      of_ranks.push_back(room.LeastAt(job->topology.PlaceOf(rank).position) + costs.StaticBytesOfRank(rank));
    job->memory_limits.of_ranks = std::move(of_ranks);
  }
  job->topology = job->topology.WithReplicas(replicas);
}

// Every layout that is judged is a copy of the job: none takes the samples along, of which it has the
// batches.
Job WithoutSamples(const Job& job) {
  Job light = job;
  light.typical_batch_size = static_cast<int32_t>(TypicalBatchSize(job));
  light.typical_samples = {};
  return light;
}

StageLayout EvenLayout(const Job& job, std::vector<int32_t> placement) {
  uint32_t layers = 0;
  for (const Stage& stage : job.topology.shape().stages) layers += static_cast<uint32_t>(stage.layers());
  const auto stages = static_cast<uint32_t>(placement.size());
  StageLayout layout;
  layout.layers.assign(stages, layers / stages);
  for (uint32_t stage = 0; stage < layers % stages; ++stage) ++layout.layers[stage];
  layout.position_of_stage = std::move(placement);
  return layout;
}

// `count` of `all` positions, evenly spaced; `part` of `parts` begins where the others leave gaps.
std::vector<size_t> EverySoMany(size_t all, size_t count, size_t part, size_t parts) {
  std::vector<size_t> positions;
  positions.reserve(count);
  for (size_t i = 0; i < count; ++i) positions.push_back((i * all + part * all / parts) / count);
  return positions;
}

// Of a batch, what a replica gets after balancing: its share of long samples and of short ones. They keep
// their order, which some policies do not change.
std::vector<SampleTokens> BalancedShare(const std::vector<SampleTokens>& batch, size_t count) {
  std::vector<size_t> by_length(batch.size());
  std::iota(by_length.begin(), by_length.end(), 0);
  std::stable_sort(by_length.begin(), by_length.end(), [&](size_t a, size_t b) {
    return batch[a].source + batch[a].target < batch[b].source + batch[b].target;
  });
  std::vector<size_t> chosen = EverySoMany(batch.size(), count, 1, 2);
  for (size_t& position : chosen) position = by_length[position];
  std::sort(chosen.begin(), chosen.end());
  std::vector<SampleTokens> share;
  share.reserve(count);
  for (const size_t position : chosen) share.push_back(batch[position]);
  return share;
}

// Whether its longest sample is shorter.
bool IsShorter(const std::vector<SampleTokens>& a, const std::vector<SampleTokens>& b) {
  const auto longest = [](const std::vector<SampleTokens>& batch) {
    uint32_t length = 0;
    for (const SampleTokens& sample : batch) length = std::max(length, sample.source + sample.target);
    return length;
  };
  return longest(a) < longest(b);
}

// In turn a batch as the samples come, and one of samples evenly spaced over all, in case that they come in
// the order of their lengths.
std::vector<std::vector<SampleTokens>> TypicalBatches(const Job& job) {
  const std::vector<SampleTokens>& all = job.typical_samples;
  if (all.empty()) {
    const uint32_t quarter = std::max<uint32_t>(1, job.max_sequence_length / 4);
    const bool t5 = job.architecture == Architecture::kT5;
    return {std::vector<SampleTokens>(kFewestSamples * job.topology.shape().positions,
                                      {t5 ? quarter : 0, quarter, quarter})};
  }
  const size_t size = std::min(TypicalBatchSize(job), all.size());
  const size_t share = size * PlannedReplicas(job) / job.topology.replicas();
  const size_t count = std::min(std::clamp(share, kFewestSamples, kMostSamples), size);
  const size_t whole = all.size() / size;
  std::vector<std::vector<SampleTokens>> batches;
  for (size_t batch = 0; batch < std::min(whole, kMostBatches / 2); ++batch) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(batch * size);
    batches.push_back(BalancedShare({begin, begin + static_cast<std::ptrdiff_t>(size)}, count));
    // Those are the same where there is one alone.
    if (whole == 1) continue;
    std::vector<SampleTokens> spaced;
    for (const size_t position : EverySoMany(all.size(), size, batch, whole)) spaced.push_back(all[position]);
    batches.push_back(BalancedShare(spaced, count));
  }
  // A layout may be the best of all but where memory is short: that is asked early.
  if (batches.size() > 1) {
    std::iter_swap(batches.begin() + 1, std::max_element(batches.begin() + 1, batches.end(), IsShorter));
  }
  return batches;
}

}  // namespace

LayoutJudge::LayoutJudge(const Profile& profile, const Job& job, StopToken stop)
    : profile_(ProfileOfGroup(profile, job)),
      job_(WithoutSamples(JobOfGroups(job))),
      stop_(stop),
      batches_(TypicalBatches(job)) {}

TokenSums LayoutJudge::TypicalMicroBatch() const {
  const std::vector<SampleTokens>& batch = batches_.front();
  const size_t count =
      std::max<size_t>(1, batch.size() / (kMicroBatchesPerRank * job_.topology.shape().positions));
  TokenSums sums;
  for (size_t i = 0; i < count; ++i) AddPacked(batch[i * batch.size() / count], &sums);
  // A profile without a closed form knows rectangles alone.
  if (profile_.has_closed_form()) return sums;
  const auto target = static_cast<int32_t>(sums.target / static_cast<double>(count));
  return PaddedSums(1, static_cast<int32_t>(sums.source / static_cast<double>(count)), target,
                    sums.loss / static_cast<double>(count), job_.windows.LessSquare(target));
}

StageLayout LayoutJudge::Balanced(std::vector<int32_t> placement) const {
  return BalanceStages(profile_, job_, TypicalMicroBatch(), job_.memory_limits.Share(kStaticShare),
                       Even(std::move(placement)), stop_);
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
  if (AvailableBytes(job, costs).Least() <= 0) return kInfeasibleNs;
  KeepReplicas(PlannedReplicas(job), costs, &job);
  job.effort = effort;
  const absl::StatusOr<FittedPlan> plan = PlanInMemory(costs, job, batches_[batch], RunSerially, stop_);
  return plan.ok() ? plan->candidate.makespan : kInfeasibleNs;
}

}  // namespace penstock::core
