#include "planner/core/search/dynamic_policy.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "planner/core/search/judge_starts.h"
#include "planner/core/search/local_search.h"
#include "planner/core/search/starts.h"
#include "planner/core/search/steadiest.h"
#include "planner/core/search/tune_rules.h"

namespace penstock::core {
namespace {

// Candidates that are refined. Padded ones gain little by it: a moved sample seldom has the length of its new
// neighbours.
constexpr size_t kPackedStarts = 4;
constexpr size_t kPaddedStarts = 1;
// Candidates whose rules and order are tuned first.
constexpr size_t kTunedStarts = 8;
// Starts that are placed where all are judged evenly, and more near the best of them.
constexpr size_t kPromising = 8;
// Micro-batches that are held side by side at a first look, as far as starts are not larger themselves:
// tables of those that lost are gone before the next ones are made, and the next ones need not be looked at
// to their end. Most batches have fewer in all starts together.
constexpr size_t kSideBySide = 32'768;
// Passes that the local search simulates for each sample and stage, by effort, and at least in all: small
// batches are cheap to plan well.
struct Budget {
  int64_t each;
  int64_t least;
};
constexpr Budget kFast = {60, 30'000};
constexpr Budget kNormal = {100, 120'000};
constexpr int64_t kStrictTimes = 2;
constexpr Budget kThorough = {15'000, 5'000'000};

class DynamicPolicy {
 public:
  DynamicPolicy(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                const RunTasks& run_tasks)
      : space_(space), costs_(space.costs()), job_(job), tokens_(tokens), run_tasks_(run_tasks) {}

  Candidate Run();

 private:
  // Candidates of a layout that are kept.
  struct Kept {
    size_t packed;
    size_t padded;
    size_t of(Layout layout) const { return layout == Layout::kPacked ? packed : padded; }
  };
  static void KeepBest(Kept kept, std::vector<Candidate>* candidates);
  // Evaluates starts as well, and keeps the best of all.
  void LookAt(std::vector<Start> starts, Kept kept, std::vector<Candidate>* best) const;
  // Those that are placed: all, or the best where starts are judged evenly.
  std::vector<Start> Promising(std::vector<Start> starts) const;
  std::vector<Candidate> Evaluated(absl::Span<Start> starts, Kept kept,
                                   absl::Span<const Candidate> best) const;
  std::vector<Candidate> LookAtStarts() const;
  // At some with about as many micro-batches as the best has.
  void LookNearBest(Kept kept, std::vector<Candidate>* candidates) const;
  Candidate Refine(std::vector<Candidate> candidates);

  const ScheduleSpace& space_;
  const CostModel& costs_;
  const Job& job_;
  absl::Span<const SampleTokens> tokens_;
  const RunTasks& run_tasks_;
};

bool IsBetter(const Candidate& a, const Candidate& b) { return a.makespan < b.makespan; }

size_t MicroBatchesOf(const Start& start) {
  size_t all = start.groups.size();
  for (const Groups& replica : start.replicas) all += replica.size();
  return all;
}

// How many of the starts from `begin` on are held side by side: one at least.
size_t SideBySide(absl::Span<const Start> starts, size_t begin) {
  size_t micro_batches = MicroBatchesOf(starts[begin]);
  size_t count = 1;
  while (begin + count < starts.size()) {
    micro_batches += MicroBatchesOf(starts[begin + count]);
    if (micro_batches > kSideBySide) break;
    ++count;
  }
  return count;
}

Layout LayoutOf(const Candidate& candidate) { return candidate.table.layout(0); }

// The best of each layout, best first; the earlier of equals.
void DynamicPolicy::KeepBest(Kept kept, std::vector<Candidate>* candidates) {
  std::stable_sort(candidates->begin(), candidates->end(), IsBetter);
  const auto dropped = [&](const Candidate& candidate) {
    size_t& left = LayoutOf(candidate) == Layout::kPacked ? kept.packed : kept.padded;
    if (left == 0) return true;
    --left;
    return false;
  };
  candidates->erase(std::remove_if(candidates->begin(), candidates->end(), dropped), candidates->end());
}

// The makespan of the last of those that are kept of a layout: one that takes longer is not kept. `best`:
// best first.
int64_t LongestKept(absl::Span<const Candidate> best, Layout layout, size_t kept) {
  for (const Candidate& candidate : best) {
    if (LayoutOf(candidate) == layout && --kept == 0) return candidate.makespan;
  }
  return kInfeasibleNs;
}

std::vector<Candidate> DynamicPolicy::Evaluated(absl::Span<Start> starts, Kept kept,
                                                absl::Span<const Candidate> best) const {
  std::vector<std::optional<Candidate>> all(starts.size());
  run_tasks_(static_cast<int>(starts.size()), [&](int index) {
    if (space_.stop().stopped()) return;
    Start& start = starts[index];
    const Layout layout = start.layout;
    ReplicaEvaluator evaluator(space_);
    Candidate candidate = start.replicas.empty()
                              ? MakeCandidate(space_, tokens_, std::move(start.groups), layout)
                              : MakeCandidate(space_, tokens_, std::move(start.replicas), layout);
    Evaluate(&evaluator, &candidate, LongestKept(best, layout, kept.of(layout)));
    all[index].emplace(std::move(candidate));
  });
  std::vector<Candidate> candidates;
  if (space_.stop().stopped()) return candidates;
  for (std::optional<Candidate>& candidate : all) candidates.push_back(*std::move(candidate));
  return candidates;
}

void DynamicPolicy::LookAt(std::vector<Start> starts, Kept kept, std::vector<Candidate>* best) const {
  for (size_t begin = 0; begin < starts.size() && !space_.stop().stopped();) {
    const size_t count = SideBySide(starts, begin);
    for (Candidate& candidate : Evaluated(absl::MakeSpan(starts).subspan(begin, count), kept, *best))
      best->push_back(std::move(candidate));
    KeepBest(kept, best);
    begin += count;
  }
}

std::vector<Start> DynamicPolicy::Promising(std::vector<Start> starts) const {
  if (!job_.judges_evenly || costs_.group().context == 1) return starts;
  std::vector<Start> promising;
  for (JudgedStart& judged : JudgeStarts(space_, tokens_, std::move(starts), kPromising, run_tasks_))
    promising.push_back(std::move(judged.start));
  return promising;
}

void DynamicPolicy::LookNearBest(Kept kept, std::vector<Candidate>* candidates) const {
  const Candidate& best = candidates->front();
  if (LayoutOf(best) != Layout::kPacked) return;
  size_t micro_batches = 0;
  for (const CandidateReplica& replica : best.replicas) micro_batches += replica.slots.size();
  const auto of_replica = static_cast<int>(micro_batches / best.replicas.size());
  LookAt(Promising(MakeStartsNear(space_, job_, tokens_, of_replica)), kept, candidates);
}

// A first look at all starts, at more of them near the best, and a closer look at the best.
std::vector<Candidate> DynamicPolicy::LookAtStarts() const {
  const bool only_padded = job_.layout == LayoutChoice::kPadded;
  const Kept kept = {.packed = kTunedStarts, .padded = only_padded ? kTunedStarts : kPaddedStarts};
  std::vector<Candidate> candidates;
  LookAt(Promising(MakeStarts(space_, job_, tokens_)), kept, &candidates);
  if (space_.stop().stopped()) return {};
  LookNearBest(kept, &candidates);
  if (space_.stop().stopped()) return {};
  run_tasks_(static_cast<int>(candidates.size()), [&](int index) {
    if (space_.stop().stopped()) return;
    ReplicaEvaluator evaluator(space_);
    TuneRules(&evaluator, &candidates[index]);
    ChooseInjectionOrder(&evaluator, &candidates[index]);
  });
  KeepBest({.packed = kPackedStarts, .padded = only_padded ? kPackedStarts : kPaddedStarts}, &candidates);
  return candidates;
}

// Successive halving (Jamieson and Talwalkar 2016): every round has the same budget, and the better half goes
// on.
Candidate DynamicPolicy::Refine(std::vector<Candidate> candidates) {
  int rounds = 1;
  for (size_t left = candidates.size(); left > 1; left = (left + 1) / 2) ++rounds;
  const double noise = costs_.profile().pass_noise;
  // Those that lost, where there is noise.
  std::vector<Candidate> set_aside;
  for (int round = 0; round < rounds; ++round) {
    if (round > 0) {
      const auto worse = candidates.begin() + static_cast<std::ptrdiff_t>((candidates.size() + 1) / 2);
      if (noise > 0) std::move(worse, candidates.end(), std::back_inserter(set_aside));
      candidates.erase(worse, candidates.end());
    }
    const int64_t budget =
        RefinementPasses(space_, job_, tokens_.size()) / rounds / static_cast<int64_t>(candidates.size());
    if (space_.stop().stopped()) break;
    run_tasks_(static_cast<int>(candidates.size()), [&](int index) {
      if (candidates[index].makespan >= kInfeasibleNs || space_.stop().stopped()) return;
      ReplicaEvaluator evaluator(space_);
      LocalSearch(&evaluator, &candidates[index], 1000 * static_cast<uint64_t>(round) + index).Run(budget);
    });
    std::stable_sort(candidates.begin(), candidates.end(), IsBetter);
  }
  if (noise == 0 || space_.stop().stopped()) return std::move(candidates.front());
  std::ranges::move(set_aside, std::back_inserter(candidates));
  return TakeSteadiest(space_, PassNoise(noise, NoiseSeed(tokens_)), std::move(candidates), run_tasks_);
}

Candidate DynamicPolicy::Run() {
  std::vector<Candidate> candidates = LookAtStarts();
  if (space_.stop().stopped()) return {space_, tokens_};
  return Refine(std::move(candidates));
}

}  // namespace

int64_t RefinementPasses(const ScheduleSpace& space, const Job& job, size_t samples) {
  const int64_t unit = static_cast<int64_t>(samples) * space.costs().stages();
  const Budget& budget = job.effort == Effort::kFast       ? kFast
                         : job.effort == Effort::kThorough ? kThorough
                                                           : kNormal;
  // With one order of passes all is left to the micro-batches themselves.
  const int64_t times = space.is_strict() ? kStrictTimes : 1;
  return std::max(budget.least, times * unit * budget.each);
}

Candidate PlanDynamic(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                      const RunTasks& run_tasks) {
  return DynamicPolicy(space, job, tokens, run_tasks).Run();
}

}  // namespace penstock::core
