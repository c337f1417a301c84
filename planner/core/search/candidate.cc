#include "planner/core/search/candidate.h"

#include <algorithm>
#include <utility>

#include "planner/core/search/replica_speeds.h"

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
std::vector<int32_t> Interleave(const std::vector<int32_t>& descending, bool largest_inside) {
  std::vector<int32_t> order(descending.size());
  size_t left = 0;
  size_t right = descending.size();
  for (size_t i = 0; i < descending.size(); ++i) {
    const int32_t slot = largest_inside ? descending[descending.size() - 1 - i] : descending[i];
    order[i % 2 == 0 ? left++ : --right] = slot;
  }
  return order;
}

// Of slots with so much work. Where replicas have other room than others, a micro-batch goes to one that has
// room for it.
Groups SlotsOfReplicas(const ScheduleSpace& space, const std::vector<double>& work,
                       absl::Span<const SampleTokens> tokens, const MicroBatchTable& table) {
  std::vector<double> speeds = ReplicaSpeeds(space.costs(), space.topology(), tokens);
  if (space.room().alike())
    return speeds.empty() ? BalancedGroups(work, space.replicas()) : BalancedGroups(work, speeds);
  if (speeds.empty()) speeds.assign(space.replicas(), 1);
  return BalancedGroups(work, speeds, [&](uint32_t slot, size_t replica) {
    return space.FitsReplica(static_cast<int>(replica), table.Sums(static_cast<int>(slot)));
  });
}

void FitRules(const ScheduleSpace& space, Candidate* candidate) {
  candidate->orders.resize(candidate->replicas.size());
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    if (candidate->stop.stopped()) return;
    CandidateReplica& part = candidate->replicas[replica];
    if (candidate->table.IsUneven(static_cast<int>(replica)))
      UpdateReplica(static_cast<int>(replica), candidate);
    FittedRules fitted = space.Fit(candidate->table, part.slots, static_cast<int>(replica));
    part.rules = std::move(fitted.rules);
    for (const int32_t slot : part.slots) {
      std::copy(fitted.levels.begin(), fitted.levels.end(), candidate->table.levels(slot).begin());
    }
    UpdateReplica(static_cast<int>(replica), candidate);
  }
}

}  // namespace

Candidate MakeCandidate(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens, Groups groups,
                        Layout layout, RowLengths row, Candidate::Rows rows) {
  SplitForReplicas(space.replicas(), &groups);
  Candidate candidate(space, tokens, rows);
  candidate.table.Reserve(groups.size());
  std::vector<double> work;
  for (std::vector<uint32_t>& group : groups) {
    if (candidate.stop.stopped()) return candidate;
    const int slot = candidate.table.Add(std::move(group), layout, row);
    candidate.table.Update(slot);
    work.push_back(static_cast<double>(candidate.table.work_ns(slot)));
  }
  candidate.replicas.resize(space.replicas());
  const Groups slots_of_replicas = SlotsOfReplicas(space, work, tokens, candidate.table);
  for (size_t replica = 0; replica < slots_of_replicas.size(); ++replica) {
    CandidateReplica& part = candidate.replicas[replica];
    part.slots.assign(slots_of_replicas[replica].begin(), slots_of_replicas[replica].end());
    std::sort(part.slots.begin(), part.slots.end());
  }
  FitRules(space, &candidate);
  return candidate;
}

Candidate MakeCandidate(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens,
                        std::vector<Groups> replicas, Layout layout, Candidate::Rows rows) {
  Candidate candidate(space, tokens, rows);
  size_t slots = 0;
  for (const Groups& groups : replicas) slots += groups.size();
  candidate.table.Reserve(slots);
  for (Groups& groups : replicas) {
    CandidateReplica& part = candidate.replicas.emplace_back();
    for (std::vector<uint32_t>& group : groups) {
      if (!group.empty()) part.slots.push_back(candidate.table.Add(std::move(group), layout));
    }
  }
  FitRules(space, &candidate);
  return candidate;
}

void UpdateReplica(int replica, Candidate* candidate) {
  const CandidateReplica& part = candidate->replicas[replica];
  for (const int32_t slot : part.slots) {
    if (candidate->stop.stopped()) return;
    candidate->table.SetReplica(slot, replica);
    candidate->table.Update(slot);
  }
}

void SetMakespan(Candidate* candidate) {
  candidate->makespan = 0;
  for (const CandidateReplica& replica : candidate->replicas) {
    candidate->makespan = std::max(candidate->makespan, replica.makespan);
  }
}

void EvaluateReplica(ReplicaEvaluator* evaluator, int replica, Candidate* candidate, int64_t give_up_ns) {
  CandidateReplica& part = candidate->replicas[replica];
  part.makespan = evaluator->Makespan(candidate->table, part.slots, part.rules, replica, give_up_ns,
                                      &candidate->orders[replica]);
}

void Evaluate(ReplicaEvaluator* evaluator, Candidate* candidate, int64_t give_up_ns) {
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    if (candidate->stop.stopped()) return;
    EvaluateReplica(evaluator, static_cast<int>(replica), candidate, give_up_ns);
  }
  SetMakespan(candidate);
}

void ChooseInjectionOrder(ReplicaEvaluator* evaluator, Candidate* candidate) {
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    if (candidate->stop.stopped()) return;
    CandidateReplica& part = candidate->replicas[replica];
    std::vector<int32_t> descending = part.slots;
    std::stable_sort(descending.begin(), descending.end(), [&](int32_t a, int32_t b) {
      return candidate->table.work_ns(a) > candidate->table.work_ns(b);
    });
    const std::vector<int32_t> ascending(descending.rbegin(), descending.rend());
    for (const std::vector<int32_t>& order :
         {descending, ascending, Interleave(descending, true), Interleave(descending, false)}) {
      const int64_t makespan =
          evaluator->Makespan(candidate->table, order, part.rules, static_cast<int>(replica));
      if (makespan >= part.makespan) continue;
      part.makespan = makespan;
      part.slots = order;
    }
    EvaluateReplica(evaluator, static_cast<int>(replica), candidate);
  }
  SetMakespan(candidate);
}

}  // namespace penstock::core
