#include "planner/core/search/starts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/core/cost/bottleneck_time.h"
#include "planner/core/partition/contiguous_groups.h"
#include "planner/core/partition/sample_order.h"
#include "planner/core/schedule/stage_bytes.h"
#include "planner/core/search/linear_pipeline.h"
#include "planner/core/search/replica_speeds.h"
#include "planner/core/search/too_large_samples.h"

namespace penstock::core {
namespace {

// Caps that first-fit decreasing is run for: 1, 5/4, 6/4, ... of the longest sample.
constexpr int kCaps = 6;
// Ratio of the numbers of micro-batches that are tried.
constexpr double kCountStep = 1.35;
// Then, over the best of them; and where sizes are ideal for a strict schedule, over the best for plain
// ramps.
constexpr double kNearCounts[] = {0.87, 1.15};
constexpr double kIdealCounts[] = {0.75, 0.87, 1, 1.15, 1.32};
// Plain ramps for that are cheap to judge.
constexpr double kFineCountStep = 1.15;
// Micro-batches of a replica that are tried: up to this many, or up to this multiple of what needs no
// recompute.
constexpr double kManyMicroBatches = 64;
constexpr double kRoomyMultiple = 1.5;
// Samples whose padded and packed times are compared, and what counts as faster.
constexpr size_t kComparedSamples = 32;
constexpr double kFasterShare = 0.98;
constexpr size_t kSmallBatch = 12;
// Rows of one rectangle at most, so that the table of windows stays linear in the batch.
constexpr int kMaxRows = 256;
// Micro-batches while the pipeline fills grow by this over the number of ranks, plus one; found by looking at
// refined plans.
constexpr double kRampGrowth = 3.0;
// They grow to at least so many times the first one: shares of those steps that are tried.
constexpr double kGrown = 7;
constexpr double kRampShares[] = {0.6, 1, 1.4};
// The last ones, with which the pipeline drains, are smaller.
constexpr int kTail = 2;
constexpr double kTailShare = 0.65;
// Micro-batches of a replica in whose mean a sample's time is asked for; it changes little with the number.
constexpr double kTypicalMicroBatches = 16;
// Micro-batches of a replica that fill and drain at least.
constexpr int kFewestInRamp = 4;
// Without split backward passes, what each of them is of the one before.
constexpr double kShrink = 0.87;

// Targets of the micro-batches of one replica: growing, level, and smaller at the end. `may_split`: weight
// gradients fill most of the drain, so that only the last two need to be small; else half of them shrink.
std::vector<double> RampWeights(int micro_batches, int ramp, double growth, bool may_split) {
  std::vector<double> weights;
  double weight = 1;
  const int level = micro_batches - (may_split ? kTail : (micro_batches - ramp) * 3 / 5);
  for (int i = 0; i < micro_batches; ++i) {
    if (i >= level && !may_split) weight *= kShrink;
    weights.push_back(i >= level && may_split ? weight * kTailShare : weight);
    if (i < ramp) weight *= growth;
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& share : weights) share /= sum;
  return weights;
}

class StartMaker {
 public:
  StartMaker(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens)
      : space_(space), costs_(space.costs()), job_(job), tokens_(tokens) {}

  std::vector<Start> All();
  std::vector<Start> Few();
  std::vector<Start> Near(int micro_batches);

 private:
  bool PaddingMayPay() const;
  void AddPadded();
  void AddPacked();
  // Fills replica_, speeds_, work_, descending_ and too_large_.
  void Weigh();
  void AddBalanced(int groups);
  // For a range of numbers of micro-batches, of a replica at most so many.
  void AddAllBalanced(double most);
  void AddRamps(double most);
  // Ramps whose sizes suit a strict schedule best.
  void AddIdealRamps(double most);
  // The number of micro-batches for which a ramp is best. 0: there are too few samples.
  int BestCount(double most) const;
  // What each sample adds to the time of a micro-batch.
  std::vector<double> AddedTimes() const;
  // Shares of the micro-batches of a replica, which add up to 1.
  std::vector<std::vector<double>> Ramps(int micro_batches) const;
  // WeightedGroups of all replicas, each so many after those of the one before. Samples go to replicas that
  // have room for them.
  Groups DivideByWeights(const std::vector<double>& weights, size_t of_replica) const;
  // Whether the replica has room for a sample.
  bool FitsAny(size_t replica) const;
  // The same targets for every replica, relative to its speed.
  void AddWeighted(const std::vector<double>& weights);
  // Micro-batches of a replica beyond which more bring nothing.
  double MostMicroBatches() const;
  bool stopped() const { return space_.stop().stopped(); }

  const ScheduleSpace& space_;
  const CostModel& costs_;
  const Job& job_;
  absl::Span<const SampleTokens> tokens_;
  // Sums over the samples of a replica, as they are on average.
  TokenSums replica_;
  // Empty: all are as fast.
  std::vector<double> speeds_;
  // AddedTimes, and the samples by it.
  std::vector<double> work_;
  std::vector<uint32_t> descending_;
  // TooLargeSamples.
  std::vector<char> too_large_;
  std::vector<Start> starts_;
};

std::vector<Start> StartMaker::All() {
  if (job_.layout != LayoutChoice::kPadded) AddPacked();
  if (job_.layout == LayoutChoice::kPadded || (job_.layout == LayoutChoice::kAuto && PaddingMayPay())) {
    AddPadded();
  }
  return std::move(starts_);
}

std::vector<Start> StartMaker::Few() {
  Weigh();
  AddAllBalanced(MostMicroBatches());
  return std::move(starts_);
}

std::vector<Start> StartMaker::Near(int micro_batches) {
  Weigh();
  for (const double times : kNearCounts) {
    const int count = static_cast<int>(times * micro_batches + 0.5);
    if (count == micro_batches || count < 1 || count > replica_.rows) continue;
    AddBalanced(count * job_.topology.replicas());
    // Ideal ramps have been made for numbers as near.
    if (space_.is_strict()) continue;
    for (const std::vector<double>& ramp : Ramps(count)) AddWeighted(ramp);
  }
  return std::move(starts_);
}

// A rectangle computes at least the tokens of its samples, so it can only win where the profile has measured
// rectangles as faster than what its closed form says of rows, or where each packed row takes time. Asks
// about some of the samples, alone.
bool StartMaker::PaddingMayPay() const {
  const BottleneckTime time(costs_, job_.recompute);
  const size_t step = std::max<size_t>(1, tokens_.size() / kComparedSamples);
  for (uint32_t sample = 0; sample < tokens_.size(); sample += static_cast<uint32_t>(step)) {
    const double packed = time(SumsOf({&sample, 1}, tokens_, Layout::kPacked));
    if (time(SumsOf({&sample, 1}, tokens_, Layout::kPadded)) < packed * kFasterShare) return true;
  }
  return false;
}

void StartMaker::AddPadded() {
  if (stopped()) return;
  const BottleneckTime time(costs_, job_.recompute);
  // Whether a sample fits alone has been asked before the search, and exactly.
  const auto fits = [this](const TokenSums& sums) {
    return sums.rows <= kMaxRows && space_.FitsSomewhere(sums);
  };
  const PartitionSearch search = {
      .replicas = job_.topology.replicas(), .stages = costs_.positions(), .stop = space_.stop()};
  const std::vector<uint32_t> order = AlikeOrder(SampleCosts(time, tokens_), space_.stop());
  if (stopped()) return;
  for (Groups& groups : ContiguousGroups(order, tokens_, Layout::kPadded, search, time, fits)) {
    starts_.push_back({std::move(groups), {}, Layout::kPadded});
  }
  // In small batches samples that are not alike may share a rectangle.
  if (tokens_.size() > kSmallBatch) return;
  std::vector<double> work;
  for (uint32_t sample = 0; sample < tokens_.size(); ++sample) {
    work.push_back(time(SumsOf({&sample, 1}, tokens_, Layout::kPadded)));
  }
  for (int count = 1; count <= static_cast<int>(tokens_.size()); ++count) {
    starts_.push_back({BalancedGroups(work, count), {}, Layout::kPadded});
  }
}

double StartMaker::MostMicroBatches() const {
  const double roomy = RoomyMicroBatches(space_, replica_);
  return std::min(std::max(kManyMicroBatches, kRoomyMultiple * roomy), static_cast<double>(tokens_.size()));
}

void StartMaker::Weigh() {
  TokenSums all;
  for (const SampleTokens& sample : tokens_) core::AddPacked(sample, &all);
  replica_ = ShareOf(all, 1.0 / job_.topology.replicas());
  speeds_ = ReplicaSpeeds(costs_, job_.topology, tokens_);
  work_ = AddedTimes();
  descending_ = DescendingOrder(work_);
  too_large_ = TooLargeSamples(space_, tokens_);
}

void StartMaker::AddBalanced(int groups) {
  if (stopped()) return;
  starts_.push_back({BalancedGroups(work_, descending_, groups), {}, Layout::kPacked});
  // Without weight gradients to fill it, the drain is as dear as the fill.
  if (space_.may_split()) return;
  starts_.push_back({BalancedGroups(work_, descending_, groups, /*small_ends=*/true), {}, Layout::kPacked});
}

void StartMaker::AddAllBalanced(double most) {
  int last = 0;
  for (double count = job_.topology.replicas(); count <= most * job_.topology.replicas();
       count *= kCountStep) {
    const int groups = std::min(static_cast<int>(tokens_.size()), static_cast<int>(count));
    if (groups == last) continue;
    last = groups;
    AddBalanced(groups);
  }
}

void StartMaker::AddPacked() {
  Weigh();
  const int samples = static_cast<int>(tokens_.size());
  const double most = MostMicroBatches();
  AddAllBalanced(most);
  if (space_.is_strict()) {
    AddIdealRamps(most);
  } else {
    AddRamps(most);
  }
  // What the packed and token_budget policies would do, by time instead of tokens.
  const double longest = work_[descending_.front()];
  for (int cap_step = 0; cap_step < kCaps && !stopped(); ++cap_step) {
    const double cap = longest * (1.0 + cap_step / 4.0);
    starts_.push_back({FirstFitDecreasing(work_, cap), {}, Layout::kPacked});
    if (cap_step % 2 == 0) starts_.push_back({BudgetGroups(work_, cap), {}, Layout::kPacked});
  }
  if (stopped()) return;
  // The last resort where memory is scarce.
  starts_.push_back({FixedSizeGroups(samples, 1), {}, Layout::kPacked});
}

void StartMaker::AddRamps(double most) {
  int last = 0;
  for (double count = kFewestInRamp; count <= most; count *= kCountStep) {
    const int micro_batches = static_cast<int>(count);
    if (micro_batches == last ||
        static_cast<size_t>(micro_batches) * job_.topology.replicas() > tokens_.size())
      continue;
    last = micro_batches;
    for (const std::vector<double>& one : Ramps(micro_batches)) AddWeighted(one);
  }
}

std::vector<std::vector<double>> StartMaker::Ramps(int micro_batches) const {
  const double growth = 1 + kRampGrowth / costs_.positions();
  double steps = 0;
  for (double size = 1; size < kGrown; size *= growth) ++steps;
  std::vector<std::vector<double>> ramps;
  for (const double share : kRampShares) {
    const int ramp = static_cast<int>(share * steps + 0.5);
    if (ramp + kTail > micro_batches) continue;
    ramps.push_back(RampWeights(micro_batches, ramp, growth, space_.may_split()));
  }
  return ramps;
}

Groups StartMaker::DivideByWeights(const std::vector<double>& weights, size_t of_replica) const {
  if (too_large_.empty()) return WeightedGroups(work_, descending_, weights);
  return WeightedGroups(work_, descending_, weights, [&](uint32_t sample, size_t group) {
    return !too_large_[group / of_replica * tokens_.size() + sample];
  });
}

bool StartMaker::FitsAny(size_t replica) const {
  if (too_large_.empty()) return true;
  const auto begin = too_large_.begin() + static_cast<ptrdiff_t>(replica * tokens_.size());
  return std::find(begin, begin + static_cast<ptrdiff_t>(tokens_.size()), 0) !=
         begin + static_cast<ptrdiff_t>(tokens_.size());
}

void StartMaker::AddWeighted(const std::vector<double>& weights) {
  if (stopped()) return;
  std::vector<double> all;
  for (int replica = 0; replica < job_.topology.replicas(); ++replica) {
    const double speed = speeds_.empty() ? 1 : speeds_[replica];
    for (const double weight : weights) all.push_back(weight * speed);
  }
  Groups groups = DivideByWeights(all, weights.size());
  Start start;
  start.replicas.resize(job_.topology.replicas());
  for (size_t group = 0; group < groups.size(); ++group) {
    start.replicas[group / weights.size()].push_back(std::move(groups[group]));
  }
  // A replica that is so slow that nothing is left for it still has to have something, unless nothing fits
  // there.
  for (size_t replica = 0; replica < start.replicas.size(); ++replica) {
    const bool has_nothing =
        std::ranges::all_of(start.replicas[replica], [](const auto& group) { return group.empty(); });
    if (has_nothing && FitsAny(replica)) return;
  }
  starts_.push_back(std::move(start));
}

// Alone, a short sample takes little more than the overhead of its micro-batch, which others share.
std::vector<double> StartMaker::AddedTimes() const {
  const TokenSums others = ShareOf(replica_, 1.0 / kTypicalMicroBatches);
  const BottleneckTime time(costs_, job_.recompute);
  const double without = time(others);
  std::vector<double> added;
  added.reserve(tokens_.size());
  for (const SampleTokens& sample : tokens_) {
    // Something for each sample must be there for those who divide them.
    if (stopped()) {
      added.push_back(0);
      continue;
    }
    TokenSums with = others;
    core::AddPacked(sample, &with);
    added.push_back(time(with) - without);
  }
  return added;
}

int StartMaker::BestCount(double most) const {
  int best = 0;
  double least = 0;
  for (double count = kFewestInRamp; count <= most; count *= kFineCountStep) {
    const int micro_batches = static_cast<int>(count);
    if (micro_batches > replica_.rows || stopped()) break;
    const std::vector<std::vector<double>> ramps = Ramps(micro_batches);
    if (ramps.empty()) continue;
    const LinearPipeline pipeline = MakeLinear(space_, replica_, micro_batches);
    const double makespan = BestSizes(pipeline.stages, ramps, space_.stop()).makespan_ns;
    if (best > 0 && makespan >= least) continue;
    best = micro_batches;
    least = makespan;
  }
  return best;
}

void StartMaker::AddIdealRamps(double most) {
  const int best = BestCount(most);
  if (best == 0) return;
  int last = 0;
  for (const double times : kIdealCounts) {
    if (stopped()) return;
    const int micro_batches = std::clamp(static_cast<int>(times * best + 0.5), kFewestInRamp,
                                         std::max(kFewestInRamp, replica_.rows));
    if (micro_batches == last) continue;
    last = micro_batches;
    const std::vector<std::vector<double>> ramps = Ramps(micro_batches);
    if (ramps.empty()) continue;
    const LinearPipeline pipeline = MakeLinear(space_, replica_, micro_batches);
    const IdealSizes ideal = FindIdealSizes(pipeline.stages, ramps, 1, space_.stop());
    AddWeighted(ideal.shares);
    const double largest = *std::max_element(ideal.shares.begin(), ideal.shares.end());
    if (largest <= pipeline.largest_share || pipeline.largest_share * micro_batches <= 1) continue;
    AddWeighted(FindIdealSizes(pipeline.stages, ramps, pipeline.largest_share, space_.stop()).shares);
  }
}

}  // namespace

double RoomyMicroBatches(const ScheduleSpace& space, const TokenSums& of_replica) {
  const CostModel& costs = space.costs();
  const std::vector<int32_t> lowest = space.LowestLevels();
  double roomy = 0;
  for (int stage = 0; stage < costs.stages(); ++stage) {
    const StageRecompute recompute =
        RecomputeAtLevel(costs.stage(stage), lowest[stage], costs.has_selective());
    const int64_t held = HeldBytes(costs, stage, costs.Memory(stage, costs.EvenShare(of_replica)), recompute);
    const int64_t available = std::max<int64_t>(1, space.room().LeastAt(costs.position_of(stage)));
    roomy = std::max(roomy, static_cast<double>(held) * space.Depth(stage) / static_cast<double>(available));
  }
  return roomy;
}

std::vector<Start> MakeStarts(const ScheduleSpace& space, const Job& job,
                              absl::Span<const SampleTokens> tokens) {
  return StartMaker(space, job, tokens).All();
}

std::vector<Start> MakeFewStarts(const ScheduleSpace& space, const Job& job,
                                 absl::Span<const SampleTokens> tokens) {
  StartMaker maker(space, job, tokens);
  return job.layout == LayoutChoice::kPadded ? maker.All() : maker.Few();
}

std::vector<Start> MakeStartsNear(const ScheduleSpace& space, const Job& job,
                                  absl::Span<const SampleTokens> tokens, int micro_batches) {
  return StartMaker(space, job, tokens).Near(micro_batches);
}

}  // namespace penstock::core
