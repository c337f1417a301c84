// `penstock advise`: which mesh, stages, policy and schedule train fastest: on lengths and a profile from
// files, or for a run with what it measured.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/parallel/task_pool.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/measured_run.h"
#include "planner/cli/advise/pool_report.h"
#include "planner/cli/advise/report.h"
#include "planner/cli/advise/run_advice.h"
#include "planner/cli/advise/run_advice_report.h"
#include "planner/cli/advise/run_pool_report.h"
#include "planner/cli/advise/side_by_side.h"
#include "planner/cli/advise/strategy_pool.h"
#include "planner/cli/advise/tournament.h"
#include "planner/cli/commands.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/recorded_flags.h"
#include "planner/cli/share_weights_flag.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

struct AdviseFlags {
  // A run that there is, in place of the source: its folder, or its job on a planner.
  std::string run_dir;
  std::string job;
  PlannerFlags planner;
  SourceFlags source;
  uint32_t gpus = 0;
  uint32_t global_batch = 0;
  std::string rows;
  uint32_t batches = 4;
  std::vector<v1::Policy> policies = {v1::POLICY_DYNAMIC, v1::POLICY_PACKED};
  PlanningFlags planning;
  Given given;
  uint32_t top = 10;
  // 0: one way to train is sought, not a pool.
  int strategies = 0;
  int threads = 1;
  // THREADS:FILE.
  std::vector<std::string> thread_profiles;
  bool json = false;
};

// Rows that are there, and the number of the first.
struct Source {
  uint64_t first_row = 0;
  std::vector<SampleLength> rows;
};

absl::StatusOr<Source> ReadSource(const AdviseFlags& flags) {
  Source source;
  if (flags.rows.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(source.rows, ReadAllLengths(flags.source.lengths));
    return source;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const RowRange range, ParseRows(flags.rows));
  PENSTOCK_ASSIGN_OR_RETURN(source.rows, ReadLengths(flags.source.lengths, range));
  source.first_row = range.first;
  return source;
}

// Global batches from the whole of the rows, evenly spaced.
absl::StatusOr<std::vector<v1::Batch>> SampleBatches(const AdviseFlags& flags,
                                                     v1::Architecture architecture) {
  PENSTOCK_ASSIGN_OR_RETURN(const Source source, ReadSource(flags));
  const uint64_t size = flags.global_batch, all = source.rows.size() / size;
  if (all == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--global-batch ", size, ": '", flags.source.lengths,
                                                   "' has ", source.rows.size(), " rows for it"));
  }
  std::vector<v1::Batch> batches;
  const uint64_t count = std::min<uint64_t>(flags.batches, all);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t batch = (2 * i + 1) * all / (2 * count);
    batches.push_back(flags.source.MakeBatch(absl::MakeConstSpan(source.rows).subspan(batch * size, size),
                                             source.first_row + batch * size, architecture));
    batches.back().set_iteration(batch);
  }
  return batches;
}

// One line on a terminal that is written over; nothing elsewhere.
void ShowProgress(int round, size_t done, size_t all) {
  std::cerr << absl::StrCat("\rround ", round, " of 3: ", done, " of ", all, " ways planned\x1b[K")
            << std::flush;
}

// Says what is wrong when nothing fits: the one cause that all have, or that they are above.
absl::Status NothingFits(const TournamentResult& result, uint32_t gpus) {
  const std::vector<Trial>& misfits = result.infeasible;
  const bool same = std::all_of(misfits.begin(), misfits.end(),
                                [&](const Trial& trial) { return trial.reason == misfits.front().reason; });
  if (same) return absl::InvalidArgumentError(misfits.front().reason);
  return absl::ResourceExhaustedError(
      absl::StrCat("no way to train fits on ", gpus, " GPUs: use more --gpus or a shorter --max-length"));
}

absl::Status AdvisePool(const AdviseFlags& flags, const Given& given, const v1::JobSpec& job,
                        const std::vector<v1::Batch>& batches) {
  TaskPool threads(flags.threads);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Strategy> strategies,
                            StrategiesToTry(job, flags.gpus, batches, given, &threads));
  PENSTOCK_ASSIGN_OR_RETURN(const StrategyPool pool, ProposePool(job, strategies, batches,
                                                                 {.strategies = flags.strategies}, &threads));
  // Of the shares that all of them have.
  v1::JobSpec chosen = WithParameterShares(job);
  SetStrategies(StrategiesOf(pool), &chosen);
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::string weights,
      ChooseWeightsOfShares(flags.planning.share_weights, batches, threads.AsFunction(), &chosen));
  if (!flags.json) {
    std::cout << PoolText(pool) << (weights.empty() ? "" : absl::StrCat("\n", weights, "\n"));
    return absl::OkStatus();
  }
  nlohmann::ordered_json json = PoolJson(pool);
  json["share_weights"] = std::vector<uint32_t>(chosen.planning().share_weights().begin(),
                                                chosen.planning().share_weights().end());
  std::cout << DumpJson(json) << "\n";
  return absl::OkStatus();
}

absl::StatusOr<MeasuredRun> ReadRun(const AdviseFlags& flags) {
  if (!flags.run_dir.empty()) {
    absl::StatusOr<MeasuredRun> run = ReadMeasuredRun(flags.run_dir);
    return run.ok() ? run : AnnotateError(run.status(), "--from-run");
  }
  if (flags.planner.address.empty())
    return absl::InvalidArgumentError("--job needs --planner, host:port of the planner that has it");
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, flags.planner.ImpatientClient());
  absl::StatusOr<MeasuredRun> run = MeasuredRunOf(*client, flags.job, flags.batches);
  return run.ok() ? run : AnnotateError(run.status(), absl::StrCat("--job ", flags.job));
}

// What a run has, flags do not say.
absl::Status CheckRunFlags(const CLI::App& command) {
  static const auto* honoured = new std::set<std::string>{"--from-run",
                                                          "--job",
                                                          "--planner",
                                                          "--batches",
                                                          "--pp",
                                                          "--dp",
                                                          "--tp",
                                                          "--cp",
                                                          "--ep",
                                                          "--policies",
                                                          "--stage-split",
                                                          "--schedule",
                                                          "--shard-optimizer-state",
                                                          "--strategies",
                                                          "--top",
                                                          "--threads",
                                                          "--threads-profile",
                                                          "--json",
                                                          "--tls-ca",
                                                          "--tls-cert",
                                                          "--tls-key",
                                                          "--tls-server-name",
                                                          "--token-file"};
  if (command.get_option("--from-run")->count() > 0 && command.get_option("--job")->count() > 0)
    return absl::InvalidArgumentError("--from-run and --job each name a run: give one of them");
  for (const auto& [flag, values] : GivenFlags(command)) {
    if (honoured->contains(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": a run that is named by --from-run or --job has its own; leave it out"));
  }
  return absl::OkStatus();
}

std::string ResumeCommand(const AdviseFlags& flags) {
  return flags.run_dir.empty() ? "" : absl::StrCat("penstock up --resume --run-dir ", flags.run_dir);
}

// A job with one mesh keeps parameters on its stages: it takes no strategies while it runs.
SwitchCommands SwitchCommandsOf(const AdviseFlags& flags, const MeasuredRun& run) {
  SwitchCommands commands = {.resume = ResumeCommand(flags)};
  if (run.job.strategies().empty()) return commands;
  commands.change = flags.run_dir.empty() ? absl::StrCat("penstock strategies --planner ",
                                                         flags.planner.address, " --job ", flags.job)
                                          : absl::StrCat("penstock strategies --run-dir ", flags.run_dir);
  return commands;
}

absl::Status AdvisePoolOfRun(const AdviseFlags& flags, const Given& given, const MeasuredRun& run) {
  TaskPool threads(flags.threads);
  PENSTOCK_ASSIGN_OR_RETURN(const RunPoolAdvice advice,
                            AdviseRunPool(run, given, flags.strategies, &threads));
  const SwitchCommands commands = SwitchCommandsOf(flags, run);
  PrintOut(flags.json ? absl::StrCat(DumpJson(RunPoolJson(run, advice, commands)), "\n")
                      : RunPoolText(run, advice, commands));
  return absl::OkStatus();
}

absl::Status RunAdviseOfRun(const AdviseFlags& flags, const Given& given) {
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredRun run, ReadRun(flags));
  if (run.batches.size() > flags.batches)
    run.batches.erase(run.batches.begin(), run.batches.end() - static_cast<ptrdiff_t>(flags.batches));
  if (flags.strategies > 0) return NameFlags(AdvisePoolOfRun(flags, given, run));
  RunAdviceOptions options{.policies = flags.policies,
                           .given = given,
                           .ways = static_cast<int>(flags.top),
                           .threads = flags.threads};
  for (const std::string& text : flags.thread_profiles) {
    PENSTOCK_ASSIGN_OR_RETURN(ThreadProfile measured, ReadThreadProfile(text));
    options.thread_profiles.push_back(std::move(measured));
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) options.progress = ShowProgress;
  const absl::StatusOr<RunAdvice> advice = AdviseRun(run, options);
  if (terminal) std::cerr << "\r\x1b[K" << std::flush;
  PENSTOCK_RETURN_IF_ERROR(advice.status());
  const std::string resume = ResumeCommand(flags);
  // Others may have written what is read: it is made printable.
  PrintOut(flags.json ? absl::StrCat(DumpJson(RunAdviceJson(run, *advice, resume)), "\n")
                      : RunAdviceText(run, *advice, resume));
  return absl::OkStatus();
}

// What is needed where no run is named.
absl::Status CheckSourceFlags(const CLI::App& command) {
  for (const char* flag : {"--profile", "--lengths", "--gpus", "--global-batch"}) {
    if (command.get_option(flag)->count() > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is required (or --from-run RUN, or --planner and --job: a run, with what it measured)"));
  }
  return absl::OkStatus();
}

absl::Status RunAdvise(const AdviseFlags& flags, const Given& given) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, flags.source.ReadModel());
  const v1::Architecture architecture = job.model().architecture();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Batch> batches, SampleBatches(flags, architecture));
  *job.mutable_planning() = flags.planning.ToOptions(v1::POLICY_DYNAMIC);
  SetTypicalSamples(batches, &job);
  if (flags.strategies > 0) return NameFlags(AdvisePool(flags, given, job, batches));
  if (flags.planning.share_weights.choose) {
    return absl::InvalidArgumentError(
        "--share-weights auto: weights are chosen for a pool; give --strategies as well, or weights");
  }
  const absl::StatusOr<std::vector<Candidate>> candidates =
      MakeCandidates(job, flags.gpus, flags.global_batch, flags.policies, given);
  PENSTOCK_RETURN_IF_ERROR(NameFlags(candidates.status()));
  TournamentOptions options{.finalists = static_cast<int>(flags.top), .threads = flags.threads};
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) options.progress = ShowProgress;
  const absl::StatusOr<TournamentResult> result = RunTournament(job, *candidates, batches, options);
  if (terminal) std::cerr << "\r\x1b[K" << std::flush;
  PENSTOCK_RETURN_IF_ERROR(result.status());
  if (flags.json) {
    std::cout << DumpJson(AdviceJson(*result, flags.top, batches.size())) << "\n";
  } else {
    std::cout << AdviceText(*result, flags.top, batches.size());
  }
  return result->finalists.empty() ? NothingFits(*result, flags.gpus) : absl::OkStatus();
}

// What a flag says is not searched.
Given GivenWays(const CLI::App& command, const AdviseFlags& flags) {
  Given given = flags.given;
  const PlanningFlags& planning = flags.planning;
  if (command.get_option("--stage-split")->count() > 0) given.stage_split = planning.stage_split;
  if (command.get_option("--schedule")->count() > 0) given.schedule = planning.schedule;
  given.shard_optimizer_state = planning.shard_optimizer_state;
  return given;
}

void AddGivenMesh(CLI::App& command, Given& given) {
  const auto degree = [&](const char* flag, uint32_t& value, const char* help) {
    command.add_option(flag, value, help)->check(CLI::Range(1U, 1U << 16));
  };
  degree("--pp", given.pipeline, "Only pipelines of so many stages");
  degree("--dp", given.data, "Only so many replicas");
  degree("--tp", given.tensor, "Only so many tensor ranks");
  degree("--cp", given.context, "Only so many context ranks");
  degree("--ep", given.expert, "Only so many ranks that divide the experts");
}

void AddRunFlags(CLI::App& command, AdviseFlags& flags) {
  command.add_option(
      "--from-run", flags.run_dir,
      "Folder of a run of penstock up, whose costs, batches and ranks are taken, as it measured "
      "them: what it would gain by other ways, and by each change alone");
  command.add_option("--job", flags.job, "The same of a job of --planner");
  command.add_option(
      "--threads-profile", flags.thread_profiles,
      "With --from-run or --job: THREADS:FILE, what penstock profile measure --threads THREADS "
      "measured of the model; what a run of so many threads a rank would gain. Several "
      "may be given; that of the run's own number says how far two measurements differ");
  flags.planner.AddTo(command, kPlannerHelp);
  // Either of them, or these.
  command.get_option("--profile")->required(false);
  command.get_option("--lengths")->required(false);
}

absl::Status Run(const CLI::App& command, const AdviseFlags& flags) {
  const Given given = GivenWays(command, flags);
  if (flags.run_dir.empty() && flags.job.empty()) {
    PENSTOCK_RETURN_IF_ERROR(CheckSourceFlags(command));
    return RunAdvise(flags, given);
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRunFlags(command));
  return RunAdviseOfRun(flags, given);
}

}  // namespace

void AddAdviseCommand(CommandSet& commands) {
  auto flags = std::make_shared<AdviseFlags>();
  CLI::App* command = commands.Add(
      {.name = "advise",
       .purpose = "Finds the mesh, stages, policy and schedule that train fastest on these lengths",
       .examples = "penstock advise --profile gpt.json --lengths lengths.csv --gpus 16 --global-batch 256 "
                   "--max-length 8192\n"
                   "penstock advise --from-run penstock-runs/mix\n"
                   "penstock advise --planner localhost:7070 --job mix"});
  flags->source.AddTo(*command);
  AddRunFlags(*command, *flags);
  command
      ->add_option("--gpus", flags->gpus,
                   "Accelerators: every pipeline x replicas x tensor ranks x context ranks of them is tried")
      ->check(CLI::Range(1U, 1U << 16));
  command->add_option("--global-batch", flags->global_batch, "Samples of an iteration, over all replicas")
      ->check(CLI::Range(1U, 1U << 20));
  command->add_option("--rows", flags->rows, "Data rows A:B to take batches from (all)");
  command->add_option("--batches", flags->batches, "Global batches that are planned, evenly spaced (4)")
      ->check(CLI::Range(1U, 1U << 10));
  AddGivenMesh(*command, flags->given);
  AddPoliciesFlag(*command, flags->policies);
  flags->planning.AddTo(*command);
  command
      ->add_option(
          "--strategies", flags->strategies,
          "Propose a pool of at most so many strategies instead (a mesh, or several side by side), "
          "of which each iteration runs on the fastest; plan more --batches for it. With --from-run or "
          "--job for what the run trains on now, beside what it has")
      ->check(CLI::Range(1, 64));
  command->add_option("--top", flags->top, "Lines of the table (10)")->check(CLI::Range(1U, 1000U));
  AddThreadsFlag(*command, flags->threads);
  command->add_flag("--json", flags->json, "Print one JSON object");
  commands.OnRun(command, [flags, command] { return Run(*command, *flags); });
}

}  // namespace penstock::cli
