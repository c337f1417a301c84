#include "planner/cli/advise/run_advice.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/mesh/mesh_ranks.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/bucket_sizes.h"
#include "planner/cli/advise/present_way.h"
#include "planner/cli/advise/tournament.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/units.h"
#include "planner/core/contract/look_ahead.h"
#include "planner/core/planner.h"

namespace penstock::cli {
namespace {

// Of the smallest batch: a replica that has no sample has nothing to do.
uint32_t GlobalBatch(const MeasuredRun& run) {
  uint32_t samples = static_cast<uint32_t>(run.batches.front().samples_size());
  for (const v1::Batch& batch : run.batches)
    samples = std::min(samples, static_cast<uint32_t>(batch.samples_size()));
  return samples;
}

double MeanOfBatches(int64_t sum_ns, const MeasuredRun& run) {
  return Milliseconds(sum_ns) / static_cast<double>(run.batches.size());
}

// Whether one that is there has the same plans under another name: a policy that found nothing better.
bool IsThere(const OtherWay& other, const std::vector<OtherWay>& others) {
  return std::ranges::any_of(others, [&](const OtherWay& there) {
    return DescribeMesh(there.way) == DescribeMesh(other.way) && there.planned_ms == other.planned_ms &&
           there.peak_memory_bytes == other.peak_memory_bytes;
  });
}

// What planning would choose by itself is given.
bool IsFixed(const v1::JobSpec& job) {
  return RecomputeName(job.planning().recompute()) != "auto" ||
         LayoutName(job.planning().layout()) != "auto" || !job.planning().layers_per_stage().empty();
}

// Whether plans of some mesh know buckets.
bool MayHideSums(const v1::JobSpec& job) {
  return job.profile().cluster().exchange_overlap() > 0 && !job.planning().parameter_shares();
}

// For ways that are compared with buckets of the size that the run has, whether it names it or not.
v1::JobSpec WithNamedBuckets(v1::JobSpec job) {
  job.mutable_planning()->set_gradient_bucket_bytes(BucketBytesOf(job));
  return job;
}

// Gives each of the ways the size of buckets with which it is planned to be the fastest. `trials`: of them.
absl::Status GiveBuckets(const MeasuredRun& run, const v1::JobSpec& base,
                         absl::Span<const Trial* const> trials, TaskPool& pool,
                         std::vector<OtherWay>& others) {
  std::vector<absl::Status> statuses(others.size());
  pool.Run(static_cast<int>(others.size()), [&](int i) {
    OtherWay& other = others[static_cast<size_t>(i)];
    const v1::JobSpec job = MakeJob(base, other.way, v1::EFFORT_NORMAL);
    if (!SumsGradients(job)) return;
    const Trial& trial = *trials[static_cast<size_t>(i)];
    const auto fastest =
        FastestBuckets(job, trial.planner->topology(), run.batches, pool.AsFunction(), trial.makespan_ns);
    statuses[static_cast<size_t>(i)] = fastest.status();
    if (!fastest.ok()) return;
    other.way.gradient_bucket_bytes = fastest->has_value() ? (*fastest)->bytes : BucketBytesOf(job);
    other.flags = SwitchFlags(run.job, other.way);
    if (fastest->has_value()) other.planned_ms = MeanOfBatches((*fastest)->planned_ns, run);
  });
  for (const absl::Status& status : statuses) PENSTOCK_RETURN_IF_ERROR(status);
  std::ranges::stable_sort(others, {}, &OtherWay::planned_ms);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<OtherWay>> FindOthers(const MeasuredRun& run, const Candidate& present,
                                                 const RunAdviceOptions& options, TaskPool& pool) {
  const bool buckets = options.buckets && MayHideSums(run.job);
  const v1::JobSpec base = buckets ? WithNamedBuckets(WithFreeChoices(run.job)) : WithFreeChoices(run.job);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                            MakeCandidates(base, static_cast<uint32_t>(RanksOf(base.mesh())),
                                           GlobalBatch(run), options.policies, options.given));
  // Some more than are wanted: the present way may be among them, and the same under two names.
  PENSTOCK_ASSIGN_OR_RETURN(const TournamentResult result, RunTournament(base, candidates, run.batches,
                                                                         {.finalists = 2 * options.ways + 1,
                                                                          .threads = options.threads,
                                                                          .progress = options.progress}));
  // Then its own way with choices left free is another one.
  const bool is_freer = IsFixed(run.job);
  std::vector<OtherWay> others;
  std::vector<const Trial*> trials;
  for (const Trial& trial : result.finalists) {
    if (!is_freer && IsSameWay(trial.candidate, present)) continue;
    if (others.size() == static_cast<size_t>(options.ways)) break;
    OtherWay other = {.way = trial.candidate,
                      .planned_ms = MeanOfBatches(trial.makespan_ns, run),
                      .peak_memory_bytes = trial.peak_memory_bytes,
                      .flags = SwitchFlags(run.job, trial.candidate)};
    if (IsThere(other, others)) continue;
    others.push_back(std::move(other));
    trials.push_back(&trial);
  }
  if (buckets) PENSTOCK_RETURN_IF_ERROR(GiveBuckets(run, base, trials, pool, others));
  return others;
}

// The present way with the fastest of buckets, and what it takes with those that it has.
absl::Status ResizeBuckets(const MeasuredRun& run, TaskPool& pool, RunAdvice& advice) {
  if (!SumsGradients(run.job)) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::Planner> planner,
                            core::Planner::Create(run.job, core::Planner::Explain::kCauseAlone));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<SizedBuckets> fastest,
                            FastestBuckets(run.job, planner->topology(), run.batches, pool.AsFunction()));
  if (!fastest.has_value()) return absl::OkStatus();
  // Simulated devices take what is planned, which is without buckets where no size is named.
  const bool has_buckets = run.job.planning().gradient_bucket_bytes() > 0 || !run.job.simulated();
  if (has_buckets) advice.planned_alike_ms = MeanOfBatches(fastest->before_ns, run);
  const bool has_these = has_buckets && fastest->bytes == BucketBytesOf(run.job);
  // On another way choices are left to planning.
  if (has_these || IsFixed(run.job)) return absl::OkStatus();
  OtherWay& resized = advice.resized.emplace(OtherWay{.way = advice.present, .flags = {}});
  resized.way.gradient_bucket_bytes = fastest->bytes;
  resized.planned_ms = MeanOfBatches(fastest->planned_ns, run);
  resized.flags = SwitchFlags(run.job, resized.way);
  return absl::OkStatus();
}

std::vector<LeverValue> LeversToValue(const MeasuredRun& run, const RunAdviceOptions& options) {
  std::vector<LeverValue> values;
  for (Lever& lever : LeversOf(run.job, GlobalBatch(run)))
    values.push_back({.lever = std::move(lever), .reason = {}});
  for (const ThreadProfile& measured : options.thread_profiles) {
    Lever lever = {.name = "threads a rank",
                   .now = "as it is",
                   .instead = absl::StrCat(measured.threads),
                   .flags = absl::StrCat("--threads ", measured.threads),
                   .job = run.job};
    *lever.job.mutable_profile() = measured.profile;
    values.push_back({.lever = std::move(lever), .reason = {}});
  }
  return values;
}

// What ranks wait for their programs a longer look-ahead saves, as far as planning keeps up.
LeverValue LookAheadLever(const MeasuredRun& run, double planned_ms) {
  const uint32_t now = core::LookAheadOf(run.job);
  return {.lever = {.name = "look-ahead",
                    .now = absl::StrCat(now),
                    .instead = absl::StrCat(2 * now),
                    .flags = absl::StrCat("--look-ahead ", 2 * now),
                    .job = run.job},
          .reason = {},
          .planned_ms = std::max(0.0, planned_ms - MeanWaitedMs(run)),
          .before_ms = planned_ms};
}

// Of levers that have one in common they are neighbours.
absl::Status SetTimesBefore(const MeasuredRun& run, double planned_ms, std::vector<LeverValue>& values) {
  const LeverValue* last = nullptr;
  for (LeverValue& value : values) {
    value.before_ms = planned_ms;
    if (!value.lever.before.has_value()) continue;
    if (last != nullptr && last->lever.name == value.lever.name) {
      value.before_ms = last->before_ms;
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t planned, PlannedNs(*value.lever.before, run.batches));
      value.before_ms = MeanOfBatches(planned, run);
    }
    last = &value;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LeverValue>> ValueLevers(const MeasuredRun& run, const RunAdviceOptions& options,
                                                    double planned_ms, TaskPool& pool) {
  std::vector<LeverValue> values = LeversToValue(run, options);
  std::vector<absl::Status> statuses(values.size());
  pool.Run(static_cast<int>(values.size()), [&](int i) {
    const absl::StatusOr<int64_t> planned = PlannedNs(values[i].lever.job, run.batches);
    values[i].feasible = planned.ok();
    if (planned.ok()) {
      values[i].planned_ms = MeanOfBatches(*planned, run);
    } else if (IsInfeasible(planned.status())) {
      values[i].reason = std::string(NameFlags(planned.status()).message());
    } else {
      statuses[i] = planned.status();
    }
  });
  for (const absl::Status& status : statuses) PENSTOCK_RETURN_IF_ERROR(status);
  PENSTOCK_RETURN_IF_ERROR(SetTimesBefore(run, planned_ms, values));
  values.push_back(LookAheadLever(run, planned_ms));
  std::ranges::stable_sort(values, [](const LeverValue& a, const LeverValue& b) {
    return a.feasible != b.feasible ? a.feasible : a.feasible && a.saved_ms() > b.saved_ms();
  });
  return values;
}

}  // namespace

absl::StatusOr<ThreadProfile> ReadThreadProfile(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  ThreadProfile measured;
  if (!absl::SimpleAtoi(parts.first, &measured.threads) || measured.threads < 1 || parts.second.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads-profile '", text, "': give THREADS:FILE, e.g. 2:profile.json"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(v1::ProfileFile file, ReadProfileFile("--threads-profile", parts.second));
  measured.profile = std::move(*file.mutable_profile());
  return measured;
}

absl::StatusOr<RunAdvice> AdviseRun(const MeasuredRun& given, const RunAdviceOptions& options) {
  if (!given.job.strategies().empty()) {
    return absl::InvalidArgumentError(
        "the run takes a mesh for each iteration (--strategies): add --strategies K here, for a pool of K "
        "for "
        "what it trains on now");
  }
  MeasuredRun run = given;
  // Stages that are chosen by time are chosen for what is trained on now.
  if (!options.own_typical_samples) SetTypicalSamples(run.batches, &run.job);
  TaskPool pool(options.threads);
  RunAdvice advice = {.present = PresentWay(run.job), .others = {}, .levers = {}};
  // Of the job as it is planned, with the stages that it was registered with.
  const absl::StatusOr<int64_t> planned = PlannedNs(given.job, run.batches);
  if (!planned.ok()) return NameFlags(planned.status());
  advice.planned_ms = MeanOfBatches(*planned, run);
  advice.planned_alike_ms = advice.planned_ms;
  PENSTOCK_ASSIGN_OR_RETURN(advice.others, FindOthers(run, advice.present, options, pool));
  if (options.buckets) PENSTOCK_RETURN_IF_ERROR(ResizeBuckets(given, pool, advice));
  if (options.levers) {
    PENSTOCK_ASSIGN_OR_RETURN(advice.levers, ValueLevers(given, options, advice.planned_ms, pool));
  }
  return advice;
}

}  // namespace penstock::cli
