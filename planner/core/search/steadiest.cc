#include "planner/core/search/steadiest.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace penstock::core {
namespace {

// All are looked at in few draws, and the best of them in more.
constexpr int kFewDraws = 8;
constexpr int kDraws = 32;
constexpr size_t kLookedAtCloser = 3;

struct Judged {
  size_t candidate = 0;
  double mean_ns = 0;
};

void Judge(const ScheduleSpace& space, const PassNoise& noise, const std::vector<Candidate>& candidates,
           int draws, const RunTasks& run_tasks, std::vector<Judged>* judged) {
  run_tasks(static_cast<int>(judged->size()), [&](int index) {
    if (space.stop().stopped()) return;
    ReplicaEvaluator evaluator(space);
    Judged& one = (*judged)[index];
    one.mean_ns = MeanUnderNoise(candidates[one.candidate], noise, draws, &evaluator);
  });
  std::ranges::stable_sort(*judged, {}, &Judged::mean_ns);
}

}  // namespace

double MeanUnderNoise(const Candidate& candidate, const PassNoise& noise, int draws,
                      ReplicaEvaluator* evaluator) {
  std::vector<int64_t> longest(draws, 0);
  std::vector<int64_t> of_replica(draws);
  for (size_t replica = 0; replica < candidate.replicas.size(); ++replica) {
    evaluator->ReplayUnderNoise(candidate.table, candidate.replicas[replica].slots, candidate.orders[replica],
                                static_cast<int>(replica), noise, absl::MakeSpan(of_replica));
    std::ranges::transform(longest, of_replica, longest.begin(),
                           [](int64_t a, int64_t b) { return std::max(a, b); });
  }
  double sum = 0;
  for (const int64_t makespan : longest) sum += static_cast<double>(makespan);
  return sum / draws;
}

Candidate TakeSteadiest(const ScheduleSpace& space, const PassNoise& noise, std::vector<Candidate> candidates,
                        const RunTasks& run_tasks) {
  const int64_t fastest = std::ranges::min(candidates, {}, &Candidate::makespan).makespan;
  const double most = kAboutAsLong * static_cast<double>(fastest);
  std::vector<Judged> judged;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (static_cast<double>(candidates[i].makespan) <= most) judged.push_back({.candidate = i});
  }
  if (judged.size() > 1 && fastest < kInfeasibleNs) {
    Judge(space, noise, candidates, kFewDraws, run_tasks, &judged);
    judged.resize(std::min(judged.size(), kLookedAtCloser));
    Judge(space, noise, candidates, kDraws, run_tasks, &judged);
  }
  Candidate& steadiest = candidates[judged.front().candidate];
  steadiest.fastest = fastest;
  return std::move(steadiest);
}

}  // namespace penstock::core
