#include "planner/core/search/policies.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "planner/core/search/dynamic_policy.h"
#include "planner/core/search/tune_rules.h"

namespace penstock::core {
namespace {

// Passes that CutIntoParts simulates at most: it looks at every micro-batch by scheduling all of them.
constexpr int64_t kCutPasses = 1'000'000;

// Caps are searched from this share of the longest sample up to this multiple of it: first in steps of a
// factor, then in finer steps on both sides of the best.
constexpr double kSmallestCap = 1.0 / 8;
constexpr double kLargestCap = 64;
constexpr double kCapFactor = 1.0905077326652577;     // eight steps double
constexpr double kFineCapFactor = 1.010889286051701;  // eight of these are one of those
constexpr int kFineSteps = 8;
// Lengths of rows that are tried, as multiples of the longest sample.
constexpr double kRowMultiples[] = {1, 1.125, 1.25, 1.5, 2, 3, 4};
// Larger micro-batches are not tried once the makespan is so many times the best of smaller ones.
constexpr int64_t kHopeless = 2;

// What a policy that is not the dynamic one searches in: the best candidate so far.
class Search {
 public:
  Search(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
         ReplicaEvaluator* evaluator)
      : space_(space), job_(job), tokens_(tokens), evaluator_(evaluator) {}

  const Job& job() const { return job_; }
  absl::Span<const SampleTokens> tokens() const { return tokens_; }
  int samples() const { return static_cast<int>(tokens_.size()); }
  bool stopped() const { return space_.stop().stopped(); }
  bool feasible() const { return best_.has_value() && best_->makespan != kInfeasibleNs; }

  // Returns the makespan. The first of equals is kept.
  int64_t Try(Groups groups, Layout layout, RowLengths row = {}) {
    if (stopped()) return kInfeasibleNs;
    row.less_square = job_.windows.LessSquare(row.target);
    Candidate candidate = MakeCandidate(space_, tokens_, std::move(groups), layout, row);
    Evaluate(evaluator_, &candidate);
    TuneRules(evaluator_, &candidate);
    const int64_t makespan = candidate.makespan;
    if (!best_.has_value() || makespan < best_->makespan) best_.emplace(std::move(candidate));
    return makespan;
  }

  // Of no worth when the space is stopped.
  Candidate TakeBest() { return best_.has_value() ? *std::move(best_) : Candidate(space_, tokens_); }

 private:
  const ScheduleSpace& space_;
  const Job& job_;
  absl::Span<const SampleTokens> tokens_;
  ReplicaEvaluator* evaluator_;
  std::optional<Candidate> best_;
};

std::vector<double> TotalTokens(absl::Span<const SampleTokens> tokens) {
  std::vector<double> sizes;
  sizes.reserve(tokens.size());
  for (const SampleTokens& sample : tokens)
    sizes.push_back(static_cast<double>(sample.source) + sample.target);
  return sizes;
}

bool MayHave(const Job& job, int64_t micro_batches) {
  return job.most_micro_batches == 0 || micro_batches <= job.most_micro_batches;
}

// Packed micro-batches of at most a cap: the given one, or the best that is found.
template <typename MakeGroups>
Candidate BestCap(Search search, MakeGroups make_groups) {
  const std::vector<double> sizes = TotalTokens(search.tokens());
  const auto attempt = [&](double cap) {
    if (search.stopped()) return kInfeasibleNs;
    Groups groups = make_groups(sizes, cap);
    if (!MayHave(search.job(), static_cast<int64_t>(groups.size()))) return kInfeasibleNs;
    return search.Try(std::move(groups), Layout::kPacked);
  };
  if (search.job().token_cap > 0) {
    attempt(static_cast<double>(search.job().token_cap));
    return search.TakeBest();
  }
  const double longest = *std::max_element(sizes.begin(), sizes.end());
  double sum = 0;
  for (const double size : sizes) sum += size;
  const int foreseen = search.job().foreseen_micro_batch_size;
  const double least = foreseen > 1 ? foreseen * longest : 0;
  // First, so that it is the answer where others are no better.
  double best_cap = std::max(longest, least);
  int64_t best = attempt(best_cap);
  const auto improve = [&](double cap) {
    if (cap < least) return;
    const int64_t makespan = attempt(std::floor(cap));
    if (makespan >= best) return;
    best = makespan;
    best_cap = cap;
  };
  const double largest = std::min(sum * kCapFactor, longest * kLargestCap);
  for (double cap = longest * kSmallestCap; cap <= largest; cap *= kCapFactor) improve(cap);
  double cap = best_cap / kCapFactor;
  for (int step = 1; step < 2 * kFineSteps; ++step) improve(cap *= kFineCapFactor);
  // The last resort where memory is scarce.
  if (!search.feasible() && !search.stopped() && MayHave(search.job(), search.samples()))
    search.Try(FixedSizeGroups(search.samples(), 1), Layout::kPacked);
  return search.TakeBest();
}

// The row that holds every sample.
RowLengths LongestRow(absl::Span<const SampleTokens> tokens) {
  RowLengths row;
  for (const SampleTokens& sample : tokens) {
    row.source = std::max(row.source, static_cast<int32_t>(sample.source));
    row.target = std::max(row.target, static_cast<int32_t>(sample.target));
  }
  return row;
}

RowLengths Scaled(RowLengths row, double source, double target) {
  // Far above any sample; keeps multiples of it within 32 bits.
  constexpr double kLongest = 1 << 30;
  return {static_cast<int32_t>(std::min(row.source * source, kLongest)),
          static_cast<int32_t>(std::min(row.target * target, kLongest))};
}

// Makes micro-batches of more and more of `count` samples or rows, `make_groups(size)`; returns the best
// makespan.
template <typename MakeGroups>
int64_t BestSize(Search* search, int count, Layout layout, RowLengths row, MakeGroups make_groups) {
  const int64_t foreseen = int64_t{search->job().foreseen_micro_batch_size} * count / search->samples();
  int64_t best = kInfeasibleNs;
  for (const int size : MicroBatchSizes(search->job(), count)) {
    if (search->stopped()) break;
    if (size < foreseen || (foreseen > 0 && layout == Layout::kPadded && size > foreseen)) continue;
    if (!MayHave(search->job(), (count + size - 1) / size)) continue;
    const int64_t makespan = search->Try(make_groups(size), layout, row);
    best = std::min(best, makespan);
    if (best < kInfeasibleNs && makespan > kHopeless * best) break;
  }
  return best;
}

int64_t TryRows(Search* search, RowLengths row) {
  if (search->stopped()) return kInfeasibleNs;
  const Groups rows = FirstFitRows(search->tokens(), row);
  return BestSize(search, static_cast<int>(rows.size()), Layout::kConcatenated, row,
                  [&](int size) { return Join(rows, size); });
}

// The best length of one of the streams while the other one's is kept.
RowLengths BestRow(Search* search, RowLengths longest, RowLengths kept, bool source) {
  int64_t best = kInfeasibleNs;
  RowLengths best_row = kept;
  for (const double multiple : kRowMultiples) {
    const RowLengths scaled = Scaled(longest, multiple, multiple);
    const RowLengths row =
        source ? RowLengths{scaled.source, kept.target} : RowLengths{kept.source, scaled.target};
    const int64_t makespan = TryRows(search, row);
    if (makespan >= best) continue;
    best = makespan;
    best_row = row;
  }
  return best_row;
}

}  // namespace

std::vector<int> MicroBatchSizes(const Job& job, int count) {
  if (job.micro_batch_size > 0) return {std::min(job.micro_batch_size, count)};
  std::vector<int> sizes;
  for (int size = 1; size <= count; size *= 2) {
    sizes.push_back(size);
    if (size >= 2 && size / 2 * 3 <= count) sizes.push_back(size / 2 * 3);
  }
  return sizes;
}

Candidate PlanPadding(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                      ReplicaEvaluator* evaluator) {
  Search search(space, job, tokens, evaluator);
  BestSize(&search, search.samples(), Layout::kPadded, {},
           [&](int size) { return FixedSizeGroups(search.samples(), size); });
  return search.TakeBest();
}

Candidate PlanConcatenated(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                           ReplicaEvaluator* evaluator) {
  Search search(space, job, tokens, evaluator);
  const RowLengths longest = LongestRow(tokens);
  if (job.token_cap > 0) {
    const double scale = static_cast<double>(job.token_cap) / (longest.source + longest.target);
    TryRows(&search, Scaled(longest, std::max(scale, 1.0), std::max(scale, 1.0)));
    return search.TakeBest();
  }
  // One stream after the other: all pairs of lengths would be slow and gain little.
  RowLengths row = longest;
  if (longest.source > 0) row = BestRow(&search, longest, row, /*source=*/true);
  if (longest.target > 0) BestRow(&search, longest, row, /*source=*/false);
  return search.TakeBest();
}

Candidate PlanPacked(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                     ReplicaEvaluator* evaluator) {
  return BestCap(Search(space, job, tokens, evaluator), FirstFitDecreasing);
}

Candidate PlanTokenBudget(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                          ReplicaEvaluator* evaluator) {
  return BestCap(Search(space, job, tokens, evaluator), BudgetGroups);
}

namespace {

Candidate SearchOnce(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                     const RunTasks& run_tasks, ReplicaEvaluator* evaluator) {
  switch (job.policy) {
    case Policy::kPadding:
      return PlanPadding(space, job, tokens, evaluator);
    case Policy::kConcatenated:
      return PlanConcatenated(space, job, tokens, evaluator);
    case Policy::kPacked:
      return PlanPacked(space, job, tokens, evaluator);
    case Policy::kTokenBudget:
      return PlanTokenBudget(space, job, tokens, evaluator);
    case Policy::kDynamic:
      break;
  }
  return PlanDynamic(space, job, tokens, run_tasks);
}

Candidate SearchByPolicy(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                         const RunTasks& run_tasks, ReplicaEvaluator* evaluator) {
  Candidate candidate = SearchOnce(space, job, tokens, run_tasks, evaluator);
  const bool any_size = job.foreseen_micro_batch_size == 0 && job.most_micro_batches == 0;
  if (candidate.makespan < kInfeasibleNs || any_size) return candidate;
  Job of_any_size = job;
  of_any_size.foreseen_micro_batch_size = 0;
  of_any_size.most_micro_batches = 0;
  return SearchOnce(space, of_any_size, tokens, run_tasks, evaluator);
}

// Places the micro-batches of a replica whose context ranks differ in speed: by their speeds, or only half as
// much, or not at all, whichever is faster. Positions whose ranks are not slow have more to do where slow
// ranks of others have less.
void PlaceUnevenly(ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  const std::vector<int32_t>& slots = candidate->replicas[replica].slots;
  const auto place = [&](double power) {
    for (const int32_t slot : slots) candidate->table.PlaceThoroughly(slot, power);
    EvaluateReplica(evaluator, replica, candidate);
    return candidate->replicas[replica].makespan;
  };
  constexpr double kPowers[] = {0, 0.5, 1};
  double best = 0;
  int64_t least = kInfeasibleNs;
  for (const double power : kPowers) {
    const int64_t makespan = place(power);
    if (makespan > least) continue;
    least = makespan;
    best = power;
  }
  if (best < 1) place(best);
}

// What the search has found, with the best placement that is known for each micro-batch.
void PlaceThoroughly(ReplicaEvaluator* evaluator, Candidate* candidate) {
  if (evaluator->space().costs().group().context == 1) return;
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    if (candidate->stop.stopped()) return;
    CandidateReplica& part = candidate->replicas[replica];
    if (candidate->table.IsUneven(static_cast<int>(replica))) {
      PlaceUnevenly(evaluator, static_cast<int>(replica), candidate);
      continue;
    }
    for (const int32_t slot : part.slots) candidate->table.PlaceThoroughly(slot);
    EvaluateReplica(evaluator, static_cast<int>(replica), candidate);
  }
  SetMakespan(candidate);
}

enum class Cut : uint8_t { kNothing, kWholeRows, kRows };

// Cuts these slots, and takes it back unless the replica is faster, or as fast. Says what was cut and taken
// back.
Cut TryParts(ReplicaEvaluator* evaluator, int replica, absl::Span<const int32_t> slots,
             MicroBatchTable::CutRows cut_rows, Candidate* candidate) {
  MicroBatchTable& table = candidate->table;
  const int64_t whole = candidate->replicas[replica].makespan;
  std::vector<MicroBatchTable::Saved> saved(slots.size());
  Cut cut = Cut::kNothing;
  for (size_t i = 0; i < slots.size(); ++i) {
    table.Save(slots[i], &saved[i]);
    table.CutIntoParts(slots[i], cut_rows);
    const PartOfRow& part_of_row = table.part_of_row(slots[i]);
    if (!part_of_row.empty()) cut = std::max(cut, Cut::kWholeRows);
    if (std::ranges::any_of(part_of_row, [](const RowPlace& row) { return row.cut; })) cut = Cut::kRows;
  }
  if (cut == Cut::kNothing) return cut;
  EvaluateReplica(evaluator, replica, candidate);
  if (candidate->replicas[replica].makespan <= whole) return Cut::kNothing;
  for (const MicroBatchTable::Saved& slot : saved) table.Restore(slot);
  EvaluateReplica(evaluator, replica, candidate);
  return cut;
}

// The same with rows that are cut, or, where these are of no use, for the memory that they take too, without.
void TryParts(ReplicaEvaluator* evaluator, int replica, absl::Span<const int32_t> slots,
              Candidate* candidate) {
  using CutRows = MicroBatchTable::CutRows;
  // Where memory is so short nothing more is kept.
  const CutRows cut_rows = evaluator->space().one_at_a_time() ? CutRows::kNone : CutRows::kAllowed;
  if (TryParts(evaluator, replica, slots, cut_rows, candidate) == Cut::kRows)
    TryParts(evaluator, replica, slots, CutRows::kNone, candidate);
}

// Parts whose rows travel beside each other: all micro-batches of a replica, or those that make it faster one
// by one. A pass that makes more products for weights itself leaves fewer to fill bubbles with.
void CutIntoParts(ReplicaEvaluator* evaluator, Candidate* candidate) {
  if (candidate->table.costs().most_parts() == 1) return;
  const int64_t most = evaluator->simulated() + kCutPasses;
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    const CandidateReplica& part = candidate->replicas[replica];
    const int64_t whole = part.makespan;
    const std::vector<int32_t> slots = part.slots;
    TryParts(evaluator, static_cast<int>(replica), slots, candidate);
    if (part.makespan < whole) continue;
    for (const int32_t slot : slots) {
      if (evaluator->simulated() > most || candidate->stop.stopped()) break;
      TryParts(evaluator, static_cast<int>(replica), {&slot, 1}, candidate);
    }
  }
  SetMakespan(candidate);
}

Candidate PlanIn(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                 const RunTasks& run_tasks) {
  ReplicaEvaluator evaluator(space);
  Candidate candidate = SearchByPolicy(space, job, tokens, run_tasks, &evaluator);
  if (space.stop().stopped()) return candidate;
  PlaceThoroughly(&evaluator, &candidate);
  CutIntoParts(&evaluator, &candidate);
  TrimRecompute(&evaluator, &candidate);
  return candidate;
}

bool HasUnevenReplicas(const Candidate& candidate) {
  for (size_t replica = 0; replica < candidate.replicas.size(); ++replica) {
    if (candidate.table.IsUneven(static_cast<int>(replica))) return true;
  }
  return false;
}

}  // namespace

Candidate PlanByPolicy(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                       const RunTasks& run_tasks) {
  Candidate candidate = PlanIn(space, job, tokens, run_tasks);
  if (space.stop().stopped() || space.costs().positions() == 1 || !HasUnevenReplicas(candidate))
    return candidate;
  Candidate even = PlanIn(space.WithEvenRows(), job, tokens, run_tasks);
  return even.makespan < candidate.makespan ? std::move(even) : std::move(candidate);
}

PolicyLook::PolicyLook(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens)
    : space_(space), job_(job), tokens_(tokens), dynamic_(space, job, tokens) {}

int64_t PolicyLook::At(Sight sight, const RunTasks& run_tasks) {
  if (job_.policy == Policy::kDynamic) return dynamic_.AtNs(sight);
  if (!found_ns_.has_value()) {
    ReplicaEvaluator evaluator(space_);
    found_ns_ = SearchByPolicy(space_, job_, tokens_, run_tasks, &evaluator).makespan;
  }
  return *found_ns_;
}

}  // namespace penstock::core
