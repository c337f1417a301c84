#include "planner/core/search/dynamic_policy.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "planner/core/cost/bottleneck_time.h"
#include "planner/core/partition/contiguous_groups.h"
#include "planner/core/partition/sample_order.h"
#include "planner/core/search/local_search.h"

namespace penstock::core {
namespace {

// Caps that first-fit decreasing is run for: 1, 5/4, 6/4, ... of the longest sample.
constexpr int kCaps = 8;
// Rows of one rectangle at most, so that the table of windows stays linear in the batch.
constexpr int kMaxRows = 256;
// Candidates that are refined. Padded ones gain little by it: a moved sample seldom has the length of its new
// neighbours.
constexpr size_t kPackedStarts = 7;
constexpr size_t kPaddedStarts = 1;
// Passes that the local search simulates for each sample and stage, by effort.
constexpr int64_t kFastPasses = 150;
constexpr int64_t kNormalPasses = 1500;
constexpr int64_t kThoroughPasses = 30000;

class DynamicPolicy {
 public:
  DynamicPolicy(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                ReplicaEvaluator* evaluator)
      : costs_(costs), job_(job), tokens_(tokens), evaluator_(evaluator) {
    FindTokenBytes();
  }

  Candidate Run();

 private:
  void TryPadded();
  void TryPacked();
  // Time of a micro-batch on the stage that takes longest; infinite when it is outside of the profile.
  double Work(const TokenSums& sums) const;
  void FindTokenBytes();
  // Whether a micro-batch fits alone, with as much recompute as there may be.
  bool Fits(const TokenSums& sums) const;
  void Try(Groups groups, Layout layout);
  static void Keep(Candidate candidate, std::vector<Candidate>* starts, size_t most);
  Candidate Refine();
  int64_t RefinementBudget() const;

  const CostModel& costs_;
  const Job& job_;
  absl::Span<const SampleTokens> tokens_;
  ReplicaEvaluator* evaluator_;
  // Bytes of a source and a target token on each stage, with as much recompute as there may be.
  std::vector<double> source_bytes_;
  std::vector<double> target_bytes_;
  // Best first.
  std::vector<Candidate> packed_;
  std::vector<Candidate> padded_;
};

void DynamicPolicy::Keep(Candidate candidate, std::vector<Candidate>* starts, size_t most) {
  const auto worse = std::find_if(starts->begin(), starts->end(), [&](const Candidate& other) {
    return candidate.makespan < other.makespan;
  });
  starts->insert(worse, std::move(candidate));
  if (starts->size() > most) starts->pop_back();
}

// Successive halving (Jamieson and Talwalkar 2016): every round has the same budget, and the better half goes
// on.
Candidate DynamicPolicy::Refine() {
  std::vector<Candidate>& starts = packed_;
  std::move(padded_.begin(), padded_.end(), std::back_inserter(starts));
  const auto better = [](const Candidate& a, const Candidate& b) { return a.makespan < b.makespan; };
  int rounds = 1;
  for (size_t left = starts.size(); left > 1; left = (left + 1) / 2) ++rounds;
  while (true) {
    const int64_t budget = RefinementBudget() / rounds / static_cast<int64_t>(starts.size());
    for (Candidate& start : starts) {
      if (start.makespan != kInfeasibleNs) LocalSearch(evaluator_, &start).Run(budget);
    }
    std::stable_sort(starts.begin(), starts.end(), better);
    if (starts.size() == 1) return std::move(starts.front());
    starts.erase(starts.begin() + static_cast<std::ptrdiff_t>((starts.size() + 1) / 2), starts.end());
  }
}

void DynamicPolicy::FindTokenBytes() {
  // Bytes are linear in tokens: many tokens give the bytes of one without rounding.
  constexpr uint32_t kMany = 1 << 20;
  const RecomputeMode most = job_.recompute == RecomputeMode::kAuto ? RecomputeMode::kFull : job_.recompute;
  const auto bytes = [&](int stage, const SampleTokens& sample) {
    TokenSums sums;
    AddPacked(sample, &sums);
    const StageMemory memory = costs_.Memory(stage, sums);
    const StageRecompute recompute = InitialRecompute(costs_.stage(stage), most);
    return static_cast<double>(HeldBytes(costs_, stage, memory, recompute) + PassingBytes(memory)) / kMany;
  };
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    source_bytes_.push_back(bytes(stage, {kMany, 0, 0}));
    target_bytes_.push_back(bytes(stage, {0, kMany, 0}));
  }
}

bool DynamicPolicy::Fits(const TokenSums& sums) const {
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    const double bytes = sums.source * source_bytes_[stage] + sums.target * target_bytes_[stage];
    if (bytes > static_cast<double>(evaluator_->available_bytes()[stage])) return false;
  }
  return true;
}

double DynamicPolicy::Work(const TokenSums& sums) const {
  LayerCosts layers;
  if (!costs_.Layers(sums, &layers)) return std::numeric_limits<double>::infinity();
  int64_t work = 0;
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    const StageRecompute recompute = InitialRecompute(costs_.stage(stage), job_.recompute);
    work = std::max(work, costs_.ForwardNs(stage, layers) + costs_.BackwardNs(stage, layers, recompute));
  }
  return static_cast<double>(work);
}

void DynamicPolicy::Try(Groups groups, Layout layout) {
  Candidate candidate =
      MakeCandidate(costs_, tokens_, job_.recompute, std::move(groups), layout, job_.replicas);
  Evaluate(evaluator_, &candidate);
  ChooseInjectionOrder(evaluator_, &candidate);
  if (layout == Layout::kPacked) {
    Keep(std::move(candidate), &packed_, kPackedStarts);
  } else {
    Keep(std::move(candidate), &padded_, kPaddedStarts);
  }
}

void DynamicPolicy::TryPadded() {
  const BottleneckTime time(costs_, job_.recompute);
  // Whether a sample fits alone has been asked before the search, and exactly.
  const auto fits = [this](const TokenSums& sums) { return sums.rows <= kMaxRows && Fits(sums); };
  const PartitionSearch search = {.replicas = job_.replicas, .stages = costs_.stages()};
  for (const std::vector<uint32_t>& order : AlikeOrders(SampleCosts(time, tokens_))) {
    for (Groups& groups : ContiguousGroups(order, tokens_, Layout::kPadded, search, time, fits)) {
      Try(std::move(groups), Layout::kPadded);
    }
  }
}

void DynamicPolicy::TryPacked() {
  std::vector<double> work;
  for (uint32_t sample = 0; sample < tokens_.size(); ++sample) {
    work.push_back(Work(SumsOf({&sample, 1}, tokens_, Layout::kPacked)));
  }
  const int samples = static_cast<int>(tokens_.size());
  int last = 0;
  for (double count = job_.replicas; count <= 64.0 * job_.replicas; count *= 1.15) {
    const int groups = std::min(samples, static_cast<int>(count));
    if (groups == last) continue;
    last = groups;
    Try(BalancedGroups(work, groups), Layout::kPacked);
    Try(BalancedGroups(work, groups, /*small_ends=*/true), Layout::kPacked);
  }
  // The last resort where memory is scarce.
  if (packed_.front().makespan == kInfeasibleNs) Try(FixedSizeGroups(samples, 1), Layout::kPacked);
  // What the packed policy would do, by time instead of tokens.
  const double longest = *std::max_element(work.begin(), work.end());
  for (int step = 0; step < kCaps; ++step) {
    Try(FirstFitDecreasing(work, longest * (1.0 + step / 4.0)), Layout::kPacked);
  }
}

// Passes to simulate: in proportion to the samples and the stages.
int64_t DynamicPolicy::RefinementBudget() const {
  const int64_t unit = static_cast<int64_t>(tokens_.size()) * costs_.stages();
  switch (job_.effort) {
    case Effort::kFast:
      return unit * kFastPasses;
    case Effort::kNormal:
      return unit * kNormalPasses;
    case Effort::kThorough:
      break;
  }
  return unit * kThoroughPasses;
}

Candidate DynamicPolicy::Run() {
  if (job_.layout != LayoutChoice::kPadded) TryPacked();
  if (job_.layout != LayoutChoice::kPacked) TryPadded();
  return Refine();
}

}  // namespace

Candidate PlanDynamic(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                      ReplicaEvaluator* evaluator) {
  return DynamicPolicy(costs, job, tokens, evaluator).Run();
}

}  // namespace penstock::core
