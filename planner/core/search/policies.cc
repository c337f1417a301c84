#include "planner/core/search/policies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/core/search/dynamic_policy.h"

namespace penstock::core {
namespace {

// Caps that are tried, as multiples of the longest sample: 1, 9/8, 10/8, ... up to 8.
constexpr int kCapSteps = 57;

std::vector<double> TotalTokens(absl::Span<const SampleTokens> tokens) {
  std::vector<double> sizes;
  for (const SampleTokens& sample : tokens)
    sizes.push_back(static_cast<double>(sample.source) + sample.target);
  return sizes;
}

// Keeps the better one; the first of equals.
void Keep(Candidate candidate, std::optional<Candidate>* best) {
  if (!best->has_value() || candidate.makespan < (*best)->makespan) best->emplace(std::move(candidate));
}

// The caps that are worth trying: the given one, or a range from the longest sample up.
std::vector<double> Caps(const Job& job, const std::vector<double>& sizes) {
  if (job.token_cap > 0) return {static_cast<double>(job.token_cap)};
  const double longest = *std::max_element(sizes.begin(), sizes.end());
  double sum = 0;
  for (const double size : sizes) sum += size;
  std::vector<double> caps;
  for (int step = 0; step < kCapSteps; ++step) {
    const double cap = longest * (1.0 + step / 8.0);
    caps.push_back(cap);
    if (cap > sum) break;
  }
  return caps;
}

template <typename MakeGroups>
Candidate BestCap(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                  ReplicaEvaluator* evaluator, MakeGroups make_groups) {
  const std::vector<double> sizes = TotalTokens(tokens);
  std::optional<Candidate> best;
  for (const double cap : Caps(job, sizes)) {
    Candidate candidate =
        MakeCandidate(costs, tokens, job.recompute, make_groups(sizes, cap), Layout::kPacked, job.replicas);
    Evaluate(evaluator, &candidate);
    Keep(std::move(candidate), &best);
  }
  return *std::move(best);
}

}  // namespace

Candidate PlanPadding(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                      ReplicaEvaluator* evaluator) {
  const int samples = static_cast<int>(tokens.size());
  std::vector<int> sizes;
  if (job.micro_batch_size > 0) sizes.push_back(std::min(job.micro_batch_size, samples));
  for (int size = 1; sizes.empty() || (job.micro_batch_size == 0 && size <= samples); size *= 2) {
    sizes.push_back(size);
  }
  std::optional<Candidate> best;
  for (const int size : sizes) {
    Candidate candidate = MakeCandidate(costs, tokens, job.recompute, FixedSizeGroups(samples, size),
                                        Layout::kPadded, job.replicas);
    Evaluate(evaluator, &candidate);
    Keep(std::move(candidate), &best);
  }
  return *std::move(best);
}

Candidate PlanPacked(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                     ReplicaEvaluator* evaluator) {
  return BestCap(costs, job, tokens, evaluator, FirstFitDecreasing);
}

Candidate PlanTokenBudget(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                          ReplicaEvaluator* evaluator) {
  return BestCap(costs, job, tokens, evaluator, BudgetGroups);
}

Candidate PlanByPolicy(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> tokens,
                       ReplicaEvaluator* evaluator) {
  switch (job.policy) {
    case Policy::kPadding:
      return PlanPadding(costs, job, tokens, evaluator);
    case Policy::kPacked:
      return PlanPacked(costs, job, tokens, evaluator);
    case Policy::kTokenBudget:
      return PlanTokenBudget(costs, job, tokens, evaluator);
    case Policy::kDynamic:
      break;
  }
  return PlanDynamic(costs, job, tokens, evaluator);
}

}  // namespace penstock::core
