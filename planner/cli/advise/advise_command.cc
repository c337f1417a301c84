// `penstock advise`: which mesh, stages, policy and schedule train fastest on these lengths.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/report.h"
#include "planner/cli/advise/tournament.h"
#include "planner/cli/commands.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

struct AdviseFlags {
  SourceFlags source;
  uint32_t gpus = 0;
  uint32_t global_batch = 0;
  std::string rows;
  uint32_t batches = 4;
  std::vector<v1::Policy> policies = {v1::POLICY_DYNAMIC, v1::POLICY_PACKED};
  PlanningFlags planning;
  Given given;
  uint32_t top = 10;
  int threads = 1;
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

absl::Status RunAdvise(const AdviseFlags& flags, const Given& given) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, flags.source.ReadModel());
  const v1::Architecture architecture = job.model().architecture();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Batch> batches, SampleBatches(flags, architecture));
  *job.mutable_planning() = flags.planning.ToOptions(v1::POLICY_DYNAMIC);
  SetTypicalSamples(batches, &job);
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
Given GivenFlags(const CLI::App& command, const AdviseFlags& flags) {
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

}  // namespace

void AddAdviseCommand(CommandSet& commands) {
  auto flags = std::make_shared<AdviseFlags>();
  CLI::App* command = commands.Add(
      {.name = "advise",
       .purpose = "Finds the mesh, stages, policy and schedule that train fastest on these lengths",
       .examples = "penstock advise --profile gpt.json --lengths lengths.csv --gpus 16 --global-batch 256 "
                   "--max-length 8192"});
  flags->source.AddTo(*command);
  command
      ->add_option("--gpus", flags->gpus,
                   "Accelerators: every pipeline x replicas x tensor ranks x context ranks of them is tried")
      ->required()
      ->check(CLI::Range(1U, 1U << 16));
  command->add_option("--global-batch", flags->global_batch, "Samples of an iteration, over all replicas")
      ->required()
      ->check(CLI::Range(1U, 1U << 20));
  command->add_option("--rows", flags->rows, "Data rows A:B to take batches from (all)");
  command->add_option("--batches", flags->batches, "Global batches that are planned, evenly spaced (4)")
      ->check(CLI::Range(1U, 1U << 10));
  AddGivenMesh(*command, flags->given);
  AddPoliciesFlag(*command, flags->policies);
  flags->planning.AddTo(*command);
  command->add_option("--top", flags->top, "Lines of the table (10)")->check(CLI::Range(1U, 1000U));
  AddThreadsFlag(*command, flags->threads);
  command->add_flag("--json", flags->json, "Print one JSON object");
  commands.OnRun(command, [flags, command] { return RunAdvise(*flags, GivenFlags(*command, *flags)); });
}

}  // namespace penstock::cli
