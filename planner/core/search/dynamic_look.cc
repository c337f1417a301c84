#include "planner/core/search/dynamic_look.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "planner/core/search/dynamic_policy.h"
#include "planner/core/search/local_search.h"
#include "planner/core/search/tune_rules.h"

namespace penstock::core {
namespace {

// Of those that were judged, so many are placed.
constexpr size_t kPlaced = 2;
// What a closer look changes of what a search does, in percent.
constexpr int64_t kChangedPercent = 3;
constexpr uint64_t kSeed = 1;

}  // namespace

DynamicLook::DynamicLook(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens)
    : space_(space), job_(job), tokens_(tokens) {}

void DynamicLook::Place(const std::vector<JudgedStart>& starts) {
  ReplicaEvaluator evaluator(space_);
  for (const JudgedStart& judged : starts) {
    if (stopped()) return;
    Candidate candidate = MakeCandidate(space_, tokens_, judged.start, Candidate::Rows::kPlaced);
    Evaluate(&evaluator, &candidate, seen_.has_value() ? seen_->makespan : kInfeasibleNs);
    if (!seen_.has_value() || candidate.makespan < seen_->makespan) seen_.emplace(std::move(candidate));
  }
}

void DynamicLook::LookAt(std::vector<Start> starts) {
  const auto judge = [&](std::vector<Start> those) {
    return JudgeStarts(space_, tokens_, std::move(those), kPlaced, RunSerially);
  };
  std::vector<JudgedStart> best = judge(std::move(starts));
  if (stopped()) return;
  if (best.front().start.layout == Layout::kPacked) {
    std::ranges::move(
        judge(MakeStartsNear(space_, job_, tokens_, best.front().micro_batches / space_.replicas())),
        std::back_inserter(best));
    std::ranges::stable_sort(best, {}, &JudgedStart::even_ns);
    best.resize(std::min(best.size(), kPlaced));
  }
  Place(best);
}

void DynamicLook::Tune() {
  ReplicaEvaluator evaluator(space_);
  TuneRules(&evaluator, &*seen_);
  ChooseInjectionOrder(&evaluator, &*seen_);
}

void DynamicLook::Change() {
  if (stopped() || seen_->makespan >= kInfeasibleNs) return;
  ReplicaEvaluator evaluator(space_);
  LocalSearch(&evaluator, &*seen_, kSeed)
      .Run(RefinementPasses(space_, job_, tokens_.size()) * kChangedPercent / 100);
}

int64_t DynamicLook::AtNs(Sight sight) {
  if (!seen_.has_value()) LookAt(MakeFewStarts(space_, job_, tokens_));
  if (sight == Sight::kCloser && !is_close_ && !stopped()) {
    is_close_ = true;
    LookAt(MakeStarts(space_, job_, tokens_));
    if (!stopped()) Tune();
    Change();
  }
  return stopped() ? kInfeasibleNs : seen_->makespan;
}

}  // namespace penstock::core
