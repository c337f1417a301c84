#include "planner/core/search/candidate.h"

#include <algorithm>

namespace penstock::core {
namespace {

// Until there is a group for every replica (or every sample is alone) the largest one gives up its second
// half.
void SplitForReplicas(size_t replicas, Groups* groups) {
  while (groups->size() < replicas) {
    auto largest = std::max_element(groups->begin(), groups->end(),
                                    [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (largest->size() < 2) return;
    const auto half = largest->begin() + static_cast<std::ptrdiff_t>(largest->size() / 2);
    std::vector<uint32_t> second(half, largest->end());
    largest->erase(half, largest->end());
    groups->push_back(std::move(second));
  }
}

// Descending from the outside in, or from the inside out.
std::vector<int> Interleave(const std::vector<int>& descending, bool largest_inside) {
  std::vector<int> order(descending.size());
  size_t left = 0;
  size_t right = descending.size();
  for (size_t i = 0; i < descending.size(); ++i) {
    const int slot = largest_inside ? descending[descending.size() - 1 - i] : descending[i];
    order[i % 2 == 0 ? left++ : --right] = slot;
  }
  return order;
}

}  // namespace

Candidate MakeCandidate(const CostModel& costs, absl::Span<const SampleTokens> tokens, RecomputeMode mode,
                        Groups groups, Layout layout, int replicas, RowLengths row) {
  SplitForReplicas(replicas, &groups);
  Candidate candidate(costs, tokens, mode);
  std::vector<double> work;
  for (std::vector<uint32_t>& group : groups) {
    const int slot = candidate.table.Add(std::move(group), layout, row);
    work.push_back(static_cast<double>(candidate.table.work_ns(slot)));
  }
  candidate.replicas.resize(replicas);
  const Groups slots_of_replicas = BalancedGroups(work, replicas);
  for (size_t replica = 0; replica < slots_of_replicas.size(); ++replica) {
    std::vector<int>& slots = candidate.replicas[replica];
    slots.assign(slots_of_replicas[replica].begin(), slots_of_replicas[replica].end());
    std::sort(slots.begin(), slots.end());
  }
  return candidate;
}

void EvaluateReplica(ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  candidate->makespans[replica] = evaluator->Makespan(candidate->table, candidate->replicas[replica],
                                                      replica * candidate->table.costs().stages());
  candidate->makespan = *std::max_element(candidate->makespans.begin(), candidate->makespans.end());
}

void Evaluate(ReplicaEvaluator* evaluator, Candidate* candidate) {
  candidate->makespans.assign(candidate->replicas.size(), 0);
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    EvaluateReplica(evaluator, static_cast<int>(replica), candidate);
  }
}

void ChooseInjectionOrder(ReplicaEvaluator* evaluator, Candidate* candidate) {
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    const int first_rank = static_cast<int>(replica) * candidate->table.costs().stages();
    std::vector<int>& slots = candidate->replicas[replica];
    std::vector<int> descending = slots;
    std::stable_sort(descending.begin(), descending.end(),
                     [&](int a, int b) { return candidate->table.work_ns(a) > candidate->table.work_ns(b); });
    const std::vector<int> ascending(descending.rbegin(), descending.rend());
    for (const std::vector<int>& order :
         {descending, ascending, Interleave(descending, true), Interleave(descending, false)}) {
      const int64_t makespan = evaluator->Makespan(candidate->table, order, first_rank);
      if (makespan >= candidate->makespans[replica]) continue;
      candidate->makespans[replica] = makespan;
      slots = order;
    }
  }
  candidate->makespan = *std::max_element(candidate->makespans.begin(), candidate->makespans.end());
}

}  // namespace penstock::core
