// `penstock plan`: plans one global batch.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/mesh/rank_places.h"
#include "common/parallel/task_pool.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/explain.h"
#include "planner/cli/html_timeline.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/plan_file.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/share_weights_flag.h"
#include "planner/cli/text_table.h"
#include "planner/cli/trace.h"
#include "planner/cli/units.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::cli {
namespace {

struct PlanFlags {
  PlanRequestFlags request;
  v1::Policy policy = v1::POLICY_DYNAMIC;
  // Rows of the same file that are validated behind the batch; empty: none.
  std::string validation_rows;
  int threads = 1;
  PlannerFlags planner;
  // A plan to show instead of making one.
  std::string from;
  std::string out;
  std::string trace;
  std::string html;
  bool explain = false;
  bool json = false;
};

// Asks a running planner; its plan is checked here as well.
absl::StatusOr<v1::Plan> PlanRemotely(const PlannerFlags& planner, const v1::JobSpec& job,
                                      const v1::Batch& batch) {
  v1::PlanBatchRequest request;
  *request.mutable_job() = job;
  *request.mutable_batch() = batch;
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, planner.Client());
  absl::StatusOr<v1::PlanBatchResponse> response = client->PlanBatch(request);
  if (!response.ok()) return AnnotateError(response.status(), absl::StrCat("--planner ", planner.address));
  PENSTOCK_RETURN_IF_ERROR(core::ViolationsToStatus(core::CheckPlan(batch, response->plan())));
  return std::move(*response->mutable_plan());
}

absl::StatusOr<v1::Plan> MakePlan(const PlanFlags& flags, const v1::JobSpec& job, const v1::Batch& batch,
                                  const core::RunTasks& run_tasks) {
  if (!flags.planner.address.empty()) return PlanRemotely(flags.planner, job, batch);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::StrategyPlanner> planner,
                            core::StrategyPlanner::Create(job, core::Planner::Explain::kChanges, run_tasks));
  return PlanAndCheck(*planner, batch, run_tasks);
}

// " (fill 9.1%, drain 3.0%)": causes of at least 0.05 %, as the others would read 0.0%.
std::string BubbleText(const std::vector<BubbleShare>& shares) {
  constexpr double kShown = 0.0005;
  std::vector<std::string> causes;
  for (const BubbleShare& share : shares)
    if (share.share >= kShown) causes.push_back(absl::StrCat(share.cause, " ", Percent(share.share)));
  return causes.empty() ? "" : absl::StrCat(" (", absl::StrJoin(causes, ", "), ")");
}

// 0 for a replica that the plan lacks.
int MicroBatchesOf(const v1::Plan& plan, uint32_t replica) {
  if (replica >= static_cast<uint32_t>(plan.replicas_size())) return 0;
  return plan.replicas(static_cast<int>(replica)).micro_batches_size();
}

// Columns of where a rank is in its stage group stand only where stages have one.
TextTable RankTable(const PlanSummary& summary, const v1::Plan& plan) {
  const bool groups = HasGroups(plan);
  const auto with_place = [groups](std::vector<std::string> cells, const std::string& context,
                                   const std::string& tensor) {
    if (groups) cells.insert(cells.begin() + 2, {context, tensor});
    return cells;
  };
  TextTable table(with_place({"rank", "stage", "micro-batches", "busy ms", "bubble", "peak MB", "limit MB"},
                             "context", "tensor"));
  const std::vector<GroupPlace> places = PlacesOf(plan);
  for (int rank = 0; rank < plan.predicted().ranks_size() && rank < plan.programs_size(); ++rank) {
    const v1::RankPrediction& predicted = plan.predicted().ranks(rank);
    const v1::Program& program = plan.programs(rank);
    const double busy_ms = Milliseconds(predicted.busy_ns());
    table.AddRow(with_place({absl::StrCat(rank), absl::StrJoin(program.stages(), ","),
                             absl::StrCat(MicroBatchesOf(plan, program.replica())), Fixed(busy_ms, 1),
                             Percent(summary.makespan_ms > 0 ? 1 - busy_ms / summary.makespan_ms : 0),
                             Fixed(Megabytes(predicted.peak_memory_bytes()), 0),
                             Fixed(Megabytes(program.memory_limit_bytes()), 0)},
                            absl::StrCat(places[rank].context), absl::StrCat(places[rank].tensor)));
  }
  return table;
}

std::string ValidationText(const v1::Plan& validation) {
  int samples = 0, micro_batches = 0;
  for (const v1::Replica& replica : validation.replicas()) {
    micro_batches += replica.micro_batches_size();
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) samples += micro_batch.samples_size();
  }
  return absl::StrCat(samples, " samples in ", micro_batches, " micro-batches, ",
                      Fixed(Milliseconds(validation.predicted().makespan_ns()), 1),
                      " ms behind the iteration");
}

void PrintText(const PlanSummary& summary, const v1::Plan& plan) {
  const auto line = [](const char* name, const std::string& value) {
    std::cout << name << std::string(20 - std::string(name).size(), ' ') << value << "\n";
  };
  line("policy", summary.policy);
  line("schedule", summary.schedule);
  line("layers per stage", absl::StrJoin(summary.layers_per_stage, ","));
  line("samples", absl::StrCat(summary.samples, " in ", summary.micro_batches, " micro-batches"));
  if (HasGroups(plan) || plan.options().parameter_shares())
    line("mesh",
         absl::StrCat(summary.mesh,
                      summary.strategy > 0 ? absl::StrCat(" (strategy ", summary.strategy, ")") : ""));
  if (!summary.share_weights.empty()) line("share weights", ShareWeightsText(summary.share_weights));
  if (!summary.spans.empty())
    line("spans", absl::StrCat(SpanText(summary.spans), " (samples x context ranks)"));
  if (summary.rows.ms > 0) line("rows of experts", RowExchangeText(summary.rows, summary.micro_batches));
  line("makespan", absl::StrCat(Fixed(summary.makespan_ms, 1), " ms"));
  line("lower bound", absl::StrCat(Fixed(summary.lower_bound_ms, 1), " ms (gap ", Percent(summary.gap), ")"));
  line("padding efficiency", Percent(summary.padding_efficiency));
  line("bubble", absl::StrCat(Percent(summary.bubble), BubbleText(summary.bubble_by_cause)));
  line("peak memory", absl::StrCat(Fixed(summary.peak_memory_mb, 0), " MB"));
  line("planning", absl::StrCat(Fixed(summary.planning_ms, 1), " ms"));
  if (plan.has_validation()) line("validation", ValidationText(plan.validation()));
  std::cout << "\n" << RankTable(summary, plan).ToString();
}

absl::Status RequireRequest(const PlanRequestFlags& request) {
  for (const auto& [name, value] :
       {std::pair("--profile", request.profile), std::pair("--lengths", request.lengths),
        std::pair("--rows", request.rows)})
    if (value.empty())
      return absl::InvalidArgumentError(absl::StrCat(name, " is required (or --from, a plan that was made)"));
  return absl::OkStatus();
}

// What the command is about. `explanation` only where it was asked for.
struct Shown {
  v1::PlannedBatch planned;
  std::optional<Explanation> explanation;
  // What is to be said of the weights of shares that were chosen; empty: none were.
  std::string chosen_weights = {};
};

// One line on a terminal that says what is being planned; it is gone at the end.
absl::StatusOr<Explanation> ExplainWithProgress(const v1::JobSpec& job, const v1::PlannedBatch& planned,
                                                const core::RunTasks& run_tasks) {
  constexpr const char* kClearLine = "\r\x1b[K";
  if (isatty(STDERR_FILENO) == 0) return Explain(job, planned, nullptr, run_tasks);
  const auto show = [](const std::string& condition) {
    std::cerr << kClearLine << "planning again with: " << condition << std::flush;
  };
  absl::StatusOr<Explanation> explanation = Explain(job, planned, show, run_tasks);
  std::cerr << kClearLine << std::flush;
  return explanation;
}

// The batch's validation, of the same iteration.
absl::StatusOr<v1::Batch> ReadValidation(const PlanFlags& flags, const v1::JobSpec& job, uint64_t iteration) {
  PlanRequestFlags request = flags.request;
  request.rows = flags.validation_rows;
  absl::StatusOr<std::vector<v1::Batch>> batches = request.ReadBatches(1, job.model().architecture());
  if (!batches.ok()) return AnnotateError(batches.status(), "--validation-rows");
  batches->front().set_iteration(iteration);
  return std::move(batches->front());
}

absl::StatusOr<Shown> PlanAnew(const PlanFlags& flags) {
  PENSTOCK_RETURN_IF_ERROR(RequireRequest(flags.request));
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, flags.request.ReadJob());
  flags.request.SetPlanning(flags.policy, &job);
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<v1::Batch> batches,
                            flags.request.ReadBatches(1, job.model().architecture()));
  SetTypicalSamples(batches, &job);
  TaskPool threads(flags.threads);
  const core::RunTasks run_tasks = threads.AsFunction();
  Shown shown;
  PENSTOCK_ASSIGN_OR_RETURN(shown.chosen_weights, ChooseWeightsOfShares(flags.request.planning.share_weights,
                                                                        batches, run_tasks, &job));
  shown.planned.mutable_batch()->Swap(&batches.front());
  if (!flags.validation_rows.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(*shown.planned.mutable_batch()->mutable_validation(),
                              ReadValidation(flags, job, shown.planned.batch().iteration()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(*shown.planned.mutable_plan(),
                            MakePlan(flags, job, shown.planned.batch(), run_tasks));
  if (flags.explain) {
    // What is planned again under other conditions is training.
    v1::PlannedBatch training = shown.planned;
    training.mutable_batch()->clear_validation();
    training.mutable_plan()->clear_validation();
    PENSTOCK_ASSIGN_OR_RETURN(shown.explanation, ExplainWithProgress(job, training, run_tasks));
  }
  return shown;
}

absl::StatusOr<Shown> ReadPlan(const std::string& path) {
  Shown shown;
  PENSTOCK_ASSIGN_OR_RETURN(shown.planned, ReadPlanFile(path));
  return shown;
}

// Null without one.
nlohmann::ordered_json ExplanationOf(const Shown& shown) {
  return shown.explanation.has_value() ? ToJson(*shown.explanation) : nullptr;
}

// Better now than after the planning.
absl::Status CheckOutputs(const PlanFlags& flags) {
  for (const auto& [name, path] :
       {std::pair("--out", flags.out), std::pair("--html", flags.html), std::pair("--trace", flags.trace)})
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(path), name));
  return absl::OkStatus();
}

absl::Status WriteFiles(const PlanFlags& flags, const Shown& shown) {
  const v1::PlannedBatch& planned = shown.planned;
  if (!flags.out.empty()) PENSTOCK_RETURN_IF_ERROR(WritePlanFile(flags.out, planned));
  if (!flags.html.empty())
    PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(flags.html, HtmlTimeline(planned, ExplanationOf(shown))));
  if (flags.trace.empty()) return absl::OkStatus();
  Trace trace;
  trace.AddPredicted(planned.plan());
  return WriteFileAtomically(flags.trace, trace.ToJson());
}

void PrintJson(const PlanSummary& summary, const Shown& shown) {
  nlohmann::ordered_json json = ToJson(summary);
  if (shown.explanation.has_value()) json["explain"] = ExplanationOf(shown);
  std::cout << DumpJson(json) << "\n";
}

absl::Status RunPlan(const PlanFlags& flags) {
  PENSTOCK_RETURN_IF_ERROR(CheckOutputs(flags));
  const absl::StatusOr<Shown> shown = flags.from.empty() ? PlanAnew(flags) : ReadPlan(flags.from);
  if (!shown.ok()) return NameFlags(shown.status());
  PENSTOCK_RETURN_IF_ERROR(WriteFiles(flags, *shown));
  const std::string policy = flags.from.empty() ? PolicyName(flags.policy) : "as planned";
  const PlanSummary summary = Summarize(policy, shown->planned.batch(), shown->planned.plan());
  if (flags.json) {
    PrintJson(summary, *shown);
    return absl::OkStatus();
  }
  if (!shown->chosen_weights.empty()) std::cout << shown->chosen_weights << "\n\n";
  PrintText(summary, shown->planned.plan());
  if (shown->explanation.has_value()) std::cout << "\n" << ToText(*shown->explanation);
  return absl::OkStatus();
}

}  // namespace

void AddPlanCommand(CommandSet& commands) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = commands.Add({.name = "plan",
                                    .purpose = "Plans one global batch and shows what it will take",
                                    .examples = "penstock plan --profile gpt.json --lengths lengths.csv "
                                                "--rows 0:256 --pp 4 --dp 2 --max-length 8192\n"
                                                "penstock plan --profile gpt.json --lengths lengths.csv "
                                                "--rows 0:256 --pp 4 --out plan.json --trace t.json\n"
                                                "penstock plan --from plan.json --html t.html"});
  flags->request.AddTo(*command);
  CLI::Option* validation = command->add_option(
      "--validation-rows", flags->validation_rows,
      "Rows of the same file, FIRST:LAST, that are validated behind the batch, forward only");
  CLI::Option* from = command->add_option(
      "--from", flags->from,
      "Show this plan, a file that --out wrote, instead of making one; nothing is checked");
  CLI::Option* explain = command->add_flag("--explain", flags->explain,
                                           "Say where the time goes, and what other conditions would gain");
  from->excludes(explain)->excludes(validation);
  for (const char* flag : {"--profile", "--lengths", "--rows"})
    from->excludes(command->get_option(flag)->required(false));
  AddPolicyFlag(*command, flags->policy);
  AddThreadsFlag(*command, flags->threads);
  flags->planner.AddTo(*command, "Ask the planner at HOST:PORT, or one of several, instead of planning here");
  command->add_option("--out", flags->out, "Write batch and plan as JSON (`penstock verify` reads it)");
  command->add_option("--trace", flags->trace,
                      "Write a timeline in Chrome's trace format (opens in ui.perfetto.dev)");
  command->add_option("--html", flags->html,
                      "Write a timeline as a web page (opens in any browser, needs no network)");
  command->add_flag("--json", flags->json, "Print one JSON object");
  commands.OnRun(command, [flags] { return RunPlan(*flags); });
}

}  // namespace penstock::cli
