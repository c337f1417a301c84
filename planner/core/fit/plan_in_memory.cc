#include "planner/core/fit/plan_in_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/feasibility/misfit.h"
#include "planner/core/fit/free_memory.h"
#include "planner/core/search/local_search.h"
#include "planner/core/search/policies.h"
#include "planner/core/search/steady_orders.h"
#include "planner/core/search/tune_rules.h"
#include "planner/core/simulate/memory_account.h"

namespace penstock::core {
namespace {

// How often layers are recomputed, and then how often there is less memory, before a search is given up.
constexpr int kReliefs = 8;
constexpr int kTightenings = 8;
// What the same micro-batches in another order may take, of what they took before, in percent.
constexpr int64_t kAcceptedPercent = 101;
// Passes that are simulated to improve programs that fit.
constexpr int64_t kImprovePasses = 60'000;
constexpr uint64_t kImproveSeed = 5000;
// Samples times stages that are planned one by one at most: programs of more take memory that nobody foresaw
// (footprint/planning_footprint.h).
constexpr size_t kMostOneByOne = 16'384;
// Of what micro-batches may take, for searches that come last.
constexpr int64_t kLessMemoryPercent[] = {97, 90};

// Schedules every replica and makes the programs.
absl::StatusOr<ProgramSet> MakePrograms(const ScheduleSpace& space, const Job& job,
                                        const Candidate& candidate, std::vector<ReplicaPipeline>* pipelines) {
  PENSTOCK_RETURN_IF_ERROR(space.stop().status());
  ReplicaEvaluator evaluator(space);
  pipelines->assign(candidate.replicas.size(), ReplicaPipeline());
  for (size_t replica = 0; replica < candidate.replicas.size(); ++replica) {
    const CandidateReplica& part = candidate.replicas[replica];
    if (!evaluator.MakePipeline(candidate.table, part.slots, part.rules, candidate.orders[replica],
                                static_cast<int>(replica), &(*pipelines)[replica])) {
      PENSTOCK_RETURN_IF_ERROR(space.stop().status());
      return absl::ResourceExhaustedError(absl::StrCat(
          "every sample fits alone, but no plan does: ",
          DescribeMicroBatches(space, job, candidate.table, part.slots, static_cast<int>(replica))));
    }
  }
  return BuildPrograms(space.costs(), *pipelines, space.stop());
}

// What the programs use above the limit of the rank where that is most. `first_rank`: of the programs.
int64_t MostExcess(const ProgramSet& programs, const Job& job, int first_rank = 0) {
  int64_t most = std::numeric_limits<int64_t>::min();
  for (int rank = 0; rank < programs.ranks(); ++rank)
    most = std::max(most, AccountMemory(programs, rank).peak_bytes - job.memory_limits.Of(first_rank + rank));
  return most;
}

bool Fits(const ProgramSet& programs, const Job& job, int first_rank = 0) {
  return MostExcess(programs, job, first_rank) <= 0;
}

// Takes `times` what the programs use above the limit away from the room of their ranks.
void TakeExcess(const ProgramSet& programs, const Job& job, int64_t times, MemoryRoom* room) {
  const auto positions = static_cast<size_t>(job.topology.shape().positions);
  const int replicas = job.topology.replicas();
  std::vector<std::vector<int64_t>> excess(room->alike() ? 1 : replicas, std::vector<int64_t>(positions, 0));
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    const RankPlace place = job.topology.PlaceOf(rank);
    // Of replicas that are alike, what any of them uses.
    int64_t& most = excess[room->alike() ? 0 : place.replica][place.position];
    most = std::max(most, AccountMemory(programs, rank).peak_bytes - job.memory_limits.Of(rank));
  }
  for (size_t replica = 0; replica < excess.size(); ++replica) {
    const absl::Span<int64_t> bytes = room->Of(static_cast<int>(replica));
    for (size_t position = 0; position < positions; ++position)
      bytes[position] -= excess[replica][position] * times;
  }
}

// What is left when nothing helps.
absl::Status DescribeExcess(const ProgramSet& programs, const Job& job) {
  const std::vector<RankMemory> memory = AccountMemory(programs);
  int fullest = 0;
  const auto above = [&](int rank) { return memory[rank].peak_bytes - job.memory_limits.Of(rank); };
  for (int rank = 1; rank < programs.ranks(); ++rank)
    if (above(rank) > above(fullest)) fullest = rank;
  return absl::ResourceExhaustedError(absl::StrCat("every sample fits alone, but no plan does: rank ",
                                                   fullest, " needs ", memory[fullest].peak_bytes,
                                                   " bytes, limit ", job.memory_limits.Of(fullest)));
}

// Puts passes in order again where memory does not suffice for the order that they have.
void OrderAgain(const ScheduleSpace& space, Candidate* candidate) {
  ReplicaEvaluator evaluator(space);
  for (size_t i = 0; i < candidate->replicas.size(); ++i) {
    CandidateReplica& part = candidate->replicas[i];
    const int replica = static_cast<int>(i);
    part.makespan = evaluator.Replay(candidate->table, part.slots, candidate->orders[i], replica);
    if (part.makespan >= kInfeasibleNs) EvaluateReplica(&evaluator, replica, candidate);
  }
  SetMakespan(candidate);
}

// Asks the programs of one replica of a candidate whether they fit.
class ReplicaPrograms {
 public:
  ReplicaPrograms(const CostModel& costs, const Job& job, ReplicaEvaluator* evaluator,
                  const Candidate* candidate)
      : costs_(costs), job_(job), evaluator_(evaluator), candidate_(candidate) {}

  bool Fit(int replica) {
    const CandidateReplica& part = candidate_->replicas[replica];
    if (!evaluator_->MakePipeline(candidate_->table, part.slots, part.rules, candidate_->orders[replica],
                                  replica, &pipeline_)) {
      return false;
    }
    absl::StatusOr<ProgramSet> programs = BuildPrograms(costs_, {&pipeline_, 1}, candidate_->stop);
    if (!programs.ok()) return false;
    // Ranks of another replica may have larger shares than those of the first.
    const int first_rank = replica * programs->ranks();
    for (int rank = 0; rank < programs->ranks(); ++rank)
      programs->static_bytes[rank] = costs_.StaticBytesOfRank(first_rank + rank);
    return Fits(*programs, job_, first_rank);
  }

 private:
  const CostModel& costs_;
  const Job& job_;
  ReplicaEvaluator* evaluator_;
  const Candidate* candidate_;
  ReplicaPipeline pipeline_;
};

// Goes on from programs that fit, with all the memory there is, and asks the programs about every change.
// They need not fit where the first order does not with this account.
absl::Status Improve(const CostModel& costs, const Job& job, StopToken stop, FittedPlan* plan) {
  const ScheduleSpace space(costs, job, AvailableBytes(job, costs), Caution::kLittle, stop);
  ReplicaEvaluator evaluator(space);
  Candidate& candidate = plan->candidate;
  ReplicaPrograms programs(costs, job, &evaluator, &candidate);
  OrderAgain(space, &candidate);
  if (candidate.makespan >= kInfeasibleNs) return absl::ResourceExhaustedError("no order is found");
  LocalSearch(&evaluator, &candidate, kImproveSeed, [&](int replica) {
    return programs.Fit(replica);
  }).Run(kImprovePasses);
  PENSTOCK_ASSIGN_OR_RETURN(plan->programs, MakePrograms(space, job, candidate, &plan->pipelines));
  return absl::OkStatus();
}

// Of the memory that the fullest rank has for micro-batches, so many percent.
Job WithFreeMemory(const CostModel& costs, Job job, int64_t percent) {
  job.memory_limits = job.memory_limits.Without(AvailableBytes(job, costs).Least() / 100 * (100 - percent));
  return job;
}

class MemoryFit {
 public:
  // `room`: what the search keeps to.
  MemoryFit(const CostModel& costs, const Job& job, MemoryRoom room, absl::Span<const SampleTokens> samples,
            Caution caution, const RunTasks& run_tasks, StopToken stop)
      : job_(job),
        samples_(samples),
        run_tasks_(run_tasks),
        space_(costs, job, std::move(room), caution, stop),
        candidate_(PlanByPolicy(space_, job, samples, run_tasks)),
        is_loose_(caution == Caution::kLittle) {}

  absl::StatusOr<FittedPlan> Run();
  // Changes nothing to make the programs fit.
  absl::StatusOr<FittedPlan> RunOnce();

 private:
  absl::Status Rebuild();
  // The programs; where there is noise, in orders that it hurts less, if these fit.
  absl::Status BuildSteady();
  // Recomputes layers until the programs fit or nothing is left to recompute.
  absl::Status Relieve();
  // Takes what the programs use above the limit away from the ranks, more of it with every attempt, and puts
  // the passes in order again; searches anew where that is much slower.
  absl::Status Tighten(int attempt);

  const Job& job_;
  absl::Span<const SampleTokens> samples_;
  const RunTasks& run_tasks_;
  ScheduleSpace space_;
  Candidate candidate_;
  std::vector<ReplicaPipeline> pipelines_;
  ProgramSet programs_;
  // Whether the search has had all the memory, and no more caution than need be.
  bool is_loose_;
};

absl::Status MemoryFit::Rebuild() {
  PENSTOCK_ASSIGN_OR_RETURN(programs_, MakePrograms(space_, job_, candidate_, &pipelines_));
  return absl::OkStatus();
}

absl::Status MemoryFit::BuildSteady() {
  const bool may_be_steadier = space_.costs().profile().pass_noise > 0 && !space_.is_strict() &&
                               candidate_.makespan < kInfeasibleNs && !space_.stop().stopped();
  if (!may_be_steadier) return Rebuild();
  const std::vector<CandidateReplica> replicas = candidate_.replicas;
  std::vector<std::vector<Pass>> orders = candidate_.orders;
  SteadyOrders(space_, NoiseSeed(samples_), run_tasks_, &candidate_);
  PENSTOCK_RETURN_IF_ERROR(Rebuild());
  if (Fits(programs_, job_)) return absl::OkStatus();
  candidate_.replicas = replicas;
  candidate_.orders = std::move(orders);
  SetMakespan(&candidate_);
  return Rebuild();
}

absl::Status MemoryFit::Relieve() {
  ReplicaEvaluator evaluator(space_);
  for (int relief = 0; relief < kReliefs && !Fits(programs_, job_); ++relief) {
    const bool freed = FreeMemory(programs_, job_.memory_limits, &evaluator, &candidate_);
    PENSTOCK_RETURN_IF_ERROR(Rebuild());
    if (!freed) break;
  }
  return absl::OkStatus();
}

absl::Status MemoryFit::Tighten(int attempt) {
  TakeExcess(programs_, job_, int64_t{1} << attempt, &space_.room());
  const int64_t before = candidate_.makespan;
  OrderAgain(space_, &candidate_);
  if (candidate_.makespan > before / 100 * kAcceptedPercent) {
    Candidate other = PlanByPolicy(space_, job_, samples_, run_tasks_);
    if (other.makespan < candidate_.makespan) candidate_ = std::move(other);
  }
  return Rebuild();
}

absl::StatusOr<FittedPlan> MemoryFit::Run() {
  PENSTOCK_RETURN_IF_ERROR(BuildSteady());
  PENSTOCK_RETURN_IF_ERROR(Relieve());
  for (int attempt = 0; !Fits(programs_, job_); ++attempt) {
    if (attempt == kTightenings) return DescribeExcess(programs_, job_);
    PENSTOCK_RETURN_IF_ERROR(Tighten(attempt));
    is_loose_ = false;
  }
  FittedPlan plan{std::move(candidate_), std::move(pipelines_), std::move(programs_)};
  if (is_loose_ || job_.policy != Policy::kDynamic) return plan;
  FittedPlan improved = plan;
  if (!Improve(space_.costs(), job_, space_.stop(), &improved).ok()) return plan;
  return Fits(improved.programs, job_) && improved.candidate.makespan < plan.candidate.makespan ? improved
                                                                                                : plan;
}

absl::StatusOr<FittedPlan> MemoryFit::RunOnce() {
  PENSTOCK_RETURN_IF_ERROR(BuildSteady());
  if (!Fits(programs_, job_)) return DescribeExcess(programs_, job_);
  return FittedPlan{std::move(candidate_), std::move(pipelines_), std::move(programs_)};
}

// Of a plan whose programs fit with all layers recomputed: keeps what the programs have room for.
absl::Status KeepMore(const CostModel& costs, const Job& job, StopToken stop, FittedPlan* plan) {
  const ScheduleSpace space(costs, job, AvailableBytes(job, costs).Plenty(), Caution::kLittle, stop);
  ReplicaEvaluator evaluator(space);
  ReplicaPrograms programs(costs, job, &evaluator, &plan->candidate);
  TrimRecompute(&evaluator, &plan->candidate, [&](int replica) { return programs.Fit(replica); });
  PENSTOCK_ASSIGN_OR_RETURN(plan->programs, MakePrograms(space, job, plan->candidate, &plan->pipelines));
  return absl::OkStatus();
}

// What a micro-batch that is alone takes above what there is, where that is most.
int64_t ExcessAlone(const ScheduleSpace& space, absl::Span<const Share> shares,
                    absl::Span<const int64_t> available) {
  int64_t most = std::numeric_limits<int64_t>::min();
  for (size_t position = 0; position < available.size(); ++position)
    most = std::max(most, space.BytesAlone(static_cast<int>(position), shares) - available[position]);
  return most;
}

// Divides the only row of a micro-batch over as few context ranks as have room for it, or over those that
// lack least.
void PlaceForMemory(const ScheduleSpace& space, int slot, absl::Span<const int64_t> available,
                    MicroBatchTable* table) {
  const double length = table->Sums(slot).target;
  int32_t best = 1;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int32_t ranks = 1; ranks == 1 || (ranks <= space.costs().group().context && length >= 2 * ranks);
       ranks *= 2) {
    table->PlaceRow(slot, ranks);
    const int64_t excess = ExcessAlone(space, table->Shares(slot), available);
    if (excess < least) {
      least = excess;
      best = ranks;
    }
    if (least <= 0) break;
  }
  table->PlaceRow(slot, best);
  table->Update(slot);
}

// A micro-batch for each sample, one after the other: nothing takes less memory.
absl::StatusOr<FittedPlan> PlanOneByOne(const CostModel& costs, const Job& job,
                                        absl::Span<const SampleTokens> samples, StopToken stop) {
  const MemoryRoom available = AvailableBytes(job, costs);
  const ScheduleSpace space(costs, job, available.Plenty(), Caution::kMost, stop);
  Groups groups;
  for (uint32_t sample = 0; sample < samples.size(); ++sample) groups.push_back({sample});
  FittedPlan plan{MakeCandidate(space, samples, std::move(groups), Layout::kPacked), {}, {}};
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  for (size_t replica = 0; costs.group().context > 1 && replica < plan.candidate.replicas.size(); ++replica) {
    for (const int32_t slot : plan.candidate.replicas[replica].slots)
      PlaceForMemory(space, slot, available.Of(static_cast<int>(replica)), &plan.candidate.table);
  }
  ReplicaEvaluator evaluator(space);
  Evaluate(&evaluator, &plan.candidate);
  PENSTOCK_ASSIGN_OR_RETURN(plan.programs, MakePrograms(space, job, plan.candidate, &plan.pipelines));
  if (!Fits(plan.programs, job)) return DescribeExcess(plan.programs, job);
  return plan;
}

// The searches' account of memory is above that of the programs in places: of a stage group it takes the most
// that any rank has of each kind of bytes, and it counts transfers around every pass. So it finds no order
// for micro-batches whose programs fit. Searches as if there were plenty of memory, and lets the programs
// judge; where they are too large then, one sample after the other.
absl::StatusOr<FittedPlan> PlanByPrograms(const CostModel& costs, const Job& job,
                                          absl::Span<const SampleTokens> samples, const RunTasks& run_tasks,
                                          StopToken stop) {
  absl::StatusOr<FittedPlan> plan;
  for (const Caution caution : {Caution::kLittle, Caution::kMost}) {
    plan = MemoryFit(costs, job, AvailableBytes(job, costs).Plenty(), samples, caution, run_tasks, stop)
               .RunOnce();
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!absl::IsResourceExhausted(plan.status())) return plan;
  }
  const bool may_be_single = job.policy == Policy::kDynamic && job.layout != LayoutChoice::kPadded &&
                             samples.size() * static_cast<size_t>(costs.stages()) <= kMostOneByOne;
  return may_be_single ? PlanOneByOne(costs, job, samples, stop) : plan;
}

// Every replica has an empty pipeline.
absl::StatusOr<FittedPlan> PlanOfNothing(const CostModel& costs, const Job& job, StopToken stop) {
  const ScheduleSpace space(costs, job, AvailableBytes(job, costs), Caution::kLittle, stop);
  FittedPlan plan{MakeCandidate(space, {}, std::vector<Groups>(space.replicas()), Layout::kPacked), {}, {}};
  plan.candidate.orders.resize(plan.candidate.replicas.size());
  SetMakespan(&plan.candidate);
  PENSTOCK_ASSIGN_OR_RETURN(plan.programs, MakePrograms(space, job, plan.candidate, &plan.pipelines));
  return plan;
}

// Searches with the memory that there is, more and more careful.
absl::StatusOr<FittedPlan> PlanBySearch(const CostModel& costs, const Job& job,
                                        absl::Span<const SampleTokens> samples, const RunTasks& run_tasks,
                                        StopToken stop) {
  absl::Status status;
  for (const Caution caution : {Caution::kLittle, Caution::kMuch, Caution::kMost}) {
    absl::StatusOr<FittedPlan> fitted =
        MemoryFit(costs, job, AvailableBytes(job, costs), samples, caution, run_tasks, stop).Run();
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!absl::IsResourceExhausted(fitted.status())) return fitted;
    status = fitted.status();
  }
  // What fits in less fits; and where a search ends at a wall, one with a little less memory may not.
  for (const int64_t percent : kLessMemoryPercent) {
    const Job with_less = WithFreeMemory(costs, job, percent);
    absl::StatusOr<FittedPlan> fitted = MemoryFit(costs, with_less, AvailableBytes(with_less, costs), samples,
                                                  Caution::kLittle, run_tasks, stop)
                                            .Run();
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!absl::IsResourceExhausted(fitted.status())) return fitted;
  }
  return status;
}

// With all layers recomputed at first. A search that may choose what is recomputed can end elsewhere, and
// nothing fits there.
absl::StatusOr<FittedPlan> PlanFromFullRecompute(const CostModel& costs, const Job& job,
                                                 absl::Span<const SampleTokens> samples,
                                                 const RunTasks& run_tasks, StopToken stop) {
  Job full = job;
  full.recompute = RecomputeMode::kFull;
  absl::StatusOr<FittedPlan> plan = PlanBySearch(costs, full, samples, run_tasks, stop);
  if (absl::IsResourceExhausted(plan.status())) plan = PlanByPrograms(costs, full, samples, run_tasks, stop);
  if (!plan.ok()) return plan;
  FittedPlan kept = *plan;
  const bool keeps_more = KeepMore(costs, job, stop, &kept).ok() && Fits(kept.programs, job);
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  return keeps_more ? kept : plan;
}

}  // namespace

absl::StatusOr<FittedPlan> PlanInMemory(const CostModel& costs, const Job& job,
                                        absl::Span<const SampleTokens> samples, const RunTasks& run_tasks,
                                        StopToken stop) {
  if (samples.empty()) return PlanOfNothing(costs, job, stop);
  absl::StatusOr<FittedPlan> plan = PlanBySearch(costs, job, samples, run_tasks, stop);
  if (!absl::IsResourceExhausted(plan.status())) return plan;
  const bool may_choose = job.recompute == RecomputeMode::kAuto;
  absl::StatusOr<FittedPlan> last = may_choose ? PlanFromFullRecompute(costs, job, samples, run_tasks, stop)
                                               : PlanByPrograms(costs, job, samples, run_tasks, stop);
  // The first search knows best what is in the way.
  return absl::IsResourceExhausted(last.status()) ? plan : last;
}

}  // namespace penstock::core
