#include "planner/core/search/dynamic_policy.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "planner/core/partition/contiguous_partition.h"
#include "planner/core/partition/sample_order.h"

namespace penstock::core {
namespace {

// Bounds that the dynamic programme is run for.
constexpr int kBounds = 24;
// Rows of one rectangle at most, so that the table of windows stays linear in the batch.
constexpr int kMaxRows = 256;

void Keep(Candidate candidate, std::optional<Candidate>* best) {
  if (!best->has_value() || candidate.makespan < (*best)->makespan) best->emplace(std::move(candidate));
}

class DynamicPolicy {
 public:
  DynamicPolicy(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                ReplicaEvaluator* evaluator)
      : costs_(costs), job_(job), tokens_(tokens), evaluator_(evaluator) {}

  Candidate Run();

 private:
  void TryPadded();
  void TryPacked();
  // Time of a micro-batch on the stage that takes longest; infinite when it does not fit.
  double Work(const TokenSums& sums) const;
  void Try(Groups groups, Layout layout);

  const CostModel& costs_;
  const Job& job_;
  absl::Span<const SampleTokens> tokens_;
  ReplicaEvaluator* evaluator_;
  std::optional<Candidate> best_;
};

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
  Keep(std::move(candidate), &best_);
}

void DynamicPolicy::TryPadded() {
  const std::vector<uint32_t> order = OrderByLength(tokens_);
  const int samples = static_cast<int>(order.size());
  // Windows only grow: their longest source and target are kept along the way.
  SampleTokens longest;
  const auto window = [&](int first, int last) {
    if (last == first) longest = SampleTokens();
    longest.source = std::max(longest.source, tokens_[order[last]].source);
    longest.target = std::max(longest.target, tokens_[order[last]].target);
    const int rows = last - first + 1;
    if (rows > kMaxRows) return std::numeric_limits<double>::infinity();
    return Work(PaddedSums(rows, static_cast<int32_t>(longest.source), static_cast<int32_t>(longest.target)));
  };
  double alone = 0;
  for (const uint32_t sample : order) {
    alone = std::max(alone, Work(SumsOf({&sample, 1}, tokens_, Layout::kPadded)));
  }
  const WindowTable windows(samples, 2 * alone, window);
  for (const double bound : CandidateBounds(windows, kBounds)) {
    const ContiguousPartition partition = PartitionWithinBound(windows, bound);
    if (partition.ends.empty()) continue;
    Groups groups;
    int begin = 0;
    for (const int end : partition.ends) {
      groups.emplace_back(order.begin() + begin, order.begin() + end);
      begin = end;
    }
    Try(std::move(groups), Layout::kPadded);
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
  }
}

Candidate DynamicPolicy::Run() {
  if (job_.layout != LayoutChoice::kPadded) TryPacked();
  if (job_.layout != LayoutChoice::kPacked) TryPadded();
  return *std::move(best_);
}

}  // namespace

Candidate PlanDynamic(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                      ReplicaEvaluator* evaluator) {
  return DynamicPolicy(costs, job, tokens, evaluator).Run();
}

}  // namespace penstock::core
