#include "planner/cli/advise/run_advice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/mesh/mesh_ranks.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/present_way.h"
#include "planner/cli/advise/tournament.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/units.h"
#include "planner/core/contract/look_ahead.h"

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

absl::StatusOr<std::vector<OtherWay>> FindOthers(const MeasuredRun& run, const Candidate& present,
                                                 const RunAdviceOptions& options) {
  const v1::JobSpec base = WithFreeChoices(run.job);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                            MakeCandidates(base, static_cast<uint32_t>(RanksOf(base.mesh())),
                                           GlobalBatch(run), options.policies, options.given));
  // Some more than are wanted: the present way may be among them, and the same under two names.
  PENSTOCK_ASSIGN_OR_RETURN(const TournamentResult result, RunTournament(base, candidates, run.batches,
                                                                         {.finalists = 2 * options.ways + 1,
                                                                          .threads = options.threads,
                                                                          .progress = options.progress}));
  // Then its own way with choices left free is another one.
  const bool is_freer = RecomputeName(run.job.planning().recompute()) != "auto" ||
                        LayoutName(run.job.planning().layout()) != "auto" ||
                        !run.job.planning().layers_per_stage().empty();
  std::vector<OtherWay> others;
  for (const Trial& trial : result.finalists) {
    if (!is_freer && IsSameWay(trial.candidate, present)) continue;
    if (others.size() == static_cast<size_t>(options.ways)) break;
    OtherWay other = {.way = trial.candidate,
                      .planned_ms = MeanOfBatches(trial.makespan_ns, run),
                      .peak_memory_bytes = trial.peak_memory_bytes,
                      .flags = SwitchFlags(run.job, trial.candidate)};
    if (!IsThere(other, others)) others.push_back(std::move(other));
  }
  return others;
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
  PENSTOCK_ASSIGN_OR_RETURN(advice.others, FindOthers(run, advice.present, options));
  if (options.levers) {
    PENSTOCK_ASSIGN_OR_RETURN(advice.levers, ValueLevers(given, options, advice.planned_ms, pool));
  }
  return advice;
}

}  // namespace penstock::cli
