#include "planner/core/stages/stage_choice.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "planner/core/search/policies.h"

namespace penstock::core {
namespace {

// Layouts that are planned for each placement at most.
constexpr int kMostProbes = 40;
// A layout whose busiest rank has so much more than that of the best one (in percent) is not planned.
constexpr int64_t kHopelessPercent = 112;
// What a placement with several stages a rank must gain, in percent.
constexpr int64_t kInterleavingGain = 1;
// Samples that are planned.
constexpr size_t kMostSamples = 256;
constexpr size_t kFewestSamples = 16;
// Share of a rank's memory that weights, gradients and optimizer state may take, so that micro-batches have
// room.
constexpr double kStaticShare = 0.85;
// Micro-batches of a typical replica for each rank, for the balance.
constexpr size_t kMicroBatchesPerRank = 2;

std::vector<int32_t> OneStageARank(int ranks) {
  std::vector<int32_t> placement(ranks);
  std::iota(placement.begin(), placement.end(), 0);
  return placement;
}

std::vector<int32_t> Loop(int ranks) {
  std::vector<int32_t> placement = OneStageARank(ranks);
  for (int rank = 0; rank < ranks; ++rank) placement.push_back(rank);
  return placement;
}

std::vector<int32_t> V(int ranks) {
  std::vector<int32_t> placement = OneStageARank(ranks);
  for (int rank = ranks - 1; rank >= 0; --rank) placement.push_back(rank);
  return placement;
}

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

// Replicas that are planned: all where a batch is small, else one for its share.
int32_t PlannedReplicas(const Job& job) {
  const size_t batch = job.typical_batch_size > 0 ? job.typical_batch_size : job.typical_samples.size();
  return batch <= kMostSamples ? job.replicas : 1;
}

// A typical batch, or one replica's share of it, evenly spaced; `part` 0 and 1 are different ones.
std::vector<SampleTokens> TypicalShare(const Job& job, size_t part) {
  if (job.typical_samples.empty()) {
    const uint32_t quarter = std::max<uint32_t>(1, job.max_sequence_length / 4);
    const bool t5 = job.architecture == Architecture::kT5;
    return std::vector<SampleTokens>(kFewestSamples * job.pipeline, {t5 ? quarter : 0, quarter, quarter});
  }
  const size_t batch = job.typical_batch_size > 0 ? job.typical_batch_size : job.typical_samples.size();
  const size_t divided = batch * PlannedReplicas(job) / job.replicas;
  const size_t wanted = std::clamp(divided, kFewestSamples, kMostSamples);
  const size_t count = std::min(wanted, job.typical_samples.size());
  std::vector<SampleTokens> share;
  const size_t all = job.typical_samples.size();
  for (size_t i = 0; i < count; ++i) {
    share.push_back(job.typical_samples[(i * all + part * all / 2) / count % all]);
  }
  return share;
}

class StageChoice {
 public:
  StageChoice(const Profile& profile, const Job& job)
      : profile_(profile), job_(job), shares_{TypicalShare(job, 0), TypicalShare(job, 1)} {}

  StageLayout Balanced(std::vector<int32_t> placement) const;
  // Improves a balanced layout, judged with little effort.
  StageLayout Probe(StageLayout layout) const;
  // The sum over both shares, with the effort that plans are made with.
  int64_t Judge(const StageLayout& layout) const;

 private:
  int64_t Makespan(const StageLayout& layout, const std::vector<SampleTokens>& share, Effort effort) const;
  int64_t BusiestRank(const StageLayout& layout) const;
  // A micro-batch as a replica would have it.
  TokenSums TypicalMicroBatch() const;

  const Profile& profile_;
  const Job& job_;
  std::vector<SampleTokens> shares_[2];
};

TokenSums StageChoice::TypicalMicroBatch() const {
  const std::vector<SampleTokens>& share = shares_[0];
  const size_t count = std::max<size_t>(1, share.size() / (kMicroBatchesPerRank * job_.pipeline));
  TokenSums sums;
  for (size_t i = 0; i < count; ++i) AddPacked(share[i * share.size() / count], &sums);
  // A profile without a closed form knows rectangles alone.
  if (profile_.has_closed_form()) return sums;
  return PaddedSums(1, static_cast<int32_t>(sums.source / static_cast<double>(count)),
                    static_cast<int32_t>(sums.target / static_cast<double>(count)),
                    sums.loss / static_cast<double>(count));
}

StageLayout StageChoice::Balanced(std::vector<int32_t> placement) const {
  const auto bytes = static_cast<int64_t>(static_cast<double>(job_.memory_limit_bytes) * kStaticShare);
  return BalanceStages(profile_, job_, TypicalMicroBatch(), bytes, EvenLayout(job_, std::move(placement)));
}

int64_t StageChoice::BusiestRank(const StageLayout& layout) const {
  const CostModel costs(profile_, WithStages(job_, layout));
  LayerCosts layers;
  costs.Layers(TypicalMicroBatch(), &layers);
  const std::vector<int64_t> times = RankTimes(costs, layers);
  return *std::max_element(times.begin(), times.end());
}

int64_t StageChoice::Judge(const StageLayout& layout) const {
  int64_t sum = 0;
  for (const std::vector<SampleTokens>& share : shares_) sum += Makespan(layout, share, Effort::kNormal);
  return sum;
}

int64_t StageChoice::Makespan(const StageLayout& layout, const std::vector<SampleTokens>& share,
                              Effort effort) const {
  Job job = WithStages(job_, layout);
  // Optimizer state may be divided over all replicas.
  const CostModel costs(profile_, job);
  job.replicas = PlannedReplicas(job);
  job.effort = effort;
  const std::vector<int64_t> available = AvailableBytes(job, costs);
  if (*std::min_element(available.begin(), available.end()) <= 0) return kInfeasibleNs;
  return PlanByPolicy(ScheduleSpace(costs, job, available), job, share, RunSerially).makespan;
}

StageLayout StageChoice::Probe(StageLayout layout) const {
  int64_t best = Makespan(layout, shares_[0], Effort::kFast);
  const int64_t balanced = BusiestRank(layout);
  const size_t stages = layout.layers.size();
  int probes = 1;
  size_t since_better = 0;
  // Every pair of stages in turn, going on after a change.
  for (size_t pair = 0; probes < kMostProbes && since_better < stages * stages; ++pair, ++since_better) {
    const size_t from = pair % stages;
    const size_t to = (from + 1 + pair / stages) % stages;
    if (from == to || layout.layers[from] == 1) continue;
    StageLayout changed = layout;
    --changed.layers[from];
    ++changed.layers[to];
    if (BusiestRank(changed) * 100 > balanced * kHopelessPercent) continue;
    ++probes;
    const int64_t time = Makespan(changed, shares_[0], Effort::kFast);
    if (time >= best) continue;
    best = time;
    layout = changed;
    since_better = 0;
  }
  return layout;
}

// The placements that the job's schedule allows, the simplest first.
std::vector<std::vector<int32_t>> Placements(const Job& job) {
  std::vector<std::vector<int32_t>> placements;
  if (job.schedule != ScheduleFamily::kInterleaved) placements.push_back(OneStageARank(job.pipeline));
  size_t layers = 0;
  for (const Stage& stage : job.stages) layers += stage.layers();
  const bool may_interleave =
      job.schedule == ScheduleFamily::kInterleaved || job.schedule == ScheduleFamily::kAuto;
  if (may_interleave && job.pipeline > 1 && layers >= 2 * static_cast<size_t>(job.pipeline)) {
    placements.push_back(V(job.pipeline));
    placements.push_back(Loop(job.pipeline));
  }
  if (placements.empty()) placements.push_back(OneStageARank(job.pipeline));
  return placements;
}

}  // namespace

Job ChooseStages(const Profile& profile, const Job& job, bool probe) {
  const StageChoice choice(profile, job);
  const std::vector<std::vector<int32_t>> placements = Placements(job);
  // Without lengths there is nothing to judge a layout by but the balance of its ranks.
  if (!probe || job.pipeline == 1 || job.typical_samples.empty())
    return WithStages(job, choice.Balanced(placements.front()));
  std::optional<StageLayout> best;
  int64_t best_makespan = 0;
  for (const std::vector<int32_t>& placement : placements) {
    const StageLayout balanced = choice.Balanced(placement);
    for (const StageLayout& layout : {balanced, choice.Probe(balanced)}) {
      const int64_t makespan = choice.Judge(layout);
      const bool more_stages = best.has_value() && layout.layers.size() > best->layers.size();
      const int64_t needed =
          more_stages ? best_makespan - best_makespan * kInterleavingGain / 100 : best_makespan;
      if (best.has_value() && makespan >= needed) continue;
      best = layout;
      best_makespan = makespan;
    }
  }
  return WithStages(job, *best);
}

}  // namespace penstock::core
