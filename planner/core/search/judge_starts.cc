#include "planner/core/search/judge_starts.h"

#include <algorithm>
#include <utility>

namespace penstock::core {

Candidate MakeCandidate(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens, const Start& start,
                        Candidate::Rows rows) {
  return start.replicas.empty() ? MakeCandidate(space, tokens, start.groups, start.layout, {}, rows)
                                : MakeCandidate(space, tokens, start.replicas, start.layout, rows);
}

std::vector<JudgedStart> JudgeStarts(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens,
                                     std::vector<Start> starts, size_t best, const RunTasks& run_tasks) {
  std::vector<JudgedStart> judged(starts.size());
  run_tasks(static_cast<int>(starts.size()), [&](int index) {
    if (space.stop().stopped()) return;
    ReplicaEvaluator evaluator(space);
    Candidate candidate = MakeCandidate(space, tokens, starts[index], Candidate::Rows::kEven);
    Evaluate(&evaluator, &candidate);
    judged[index] = {std::move(starts[index]), candidate.makespan, candidate.table.slots()};
  });
  if (space.stop().stopped()) return {};
  std::ranges::stable_sort(judged, {}, &JudgedStart::even_ns);
  if (judged.size() > best) judged.resize(best);
  return judged;
}

}  // namespace penstock::core
