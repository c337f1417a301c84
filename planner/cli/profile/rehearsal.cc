#include "planner/cli/profile/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/dataset/indexed_dataset_writer.h"
#include "common/files/scratch_folder.h"
#include "common/median/median.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/measured_run.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/up/program_folder.h"
#include "planner/cli/up/run_console.h"
#include "planner/cli/up/run_setup.h"
#include "planner/cli/up/stop_signal.h"
#include "planner/cli/up/up_run.h"
#include "planner/core/calibrate/training_factor.h"
#include "planner/core/contract/model_architecture.h"
#include "planner/core/contract/total_layers.h"

namespace penstock::cli {
namespace {

// Of one rank, in an iteration: about so many, of at least and at most so many samples.
constexpr double kTokensOfRank = 2048;
constexpr double kFewestSamples = 2;
constexpr double kMostSamples = 8;
constexpr double kLeastTokens = 16;
constexpr uint64_t kSeed = 26;
// More is no difference between training and measuring, but something else on the machine.
constexpr double kMostFactor = 2;
constexpr double kMostMoreIterations = 64;
// Fewer say too little of single parts.
constexpr uint64_t kFewestToFit = 8;

bool IsEncoderDecoder(const v1::ModelSpec& model) { return model.architecture() == v1::ARCHITECTURE_T5; }

// The longest sample over the shortest, logarithm.
double LengthRange(const v1::ModelSpec& model) {
  return std::log(std::max(static_cast<double>(model.max_sequence_length()) / kLeastTokens, 1.0));
}

uint32_t SamplesOfRank(const v1::ModelSpec& model) {
  const double range = LengthRange(model);
  const double mean = range > 0 ? kLeastTokens * std::expm1(range) / range : kLeastTokens;
  const double sides = IsEncoderDecoder(model) ? 2 : 1;
  return static_cast<uint32_t>(
      std::clamp(std::round(kTokensOfRank / (mean * sides)), kFewestSamples, kMostSamples));
}

std::vector<int32_t> RandomTokens(const v1::ModelSpec& model, std::mt19937_64& random) {
  const double place = static_cast<double>(random() % 4096) / 4096;
  const auto drawn = static_cast<size_t>(kLeastTokens * std::exp(place * LengthRange(model)));
  std::vector<int32_t> tokens(std::min<size_t>(drawn, model.max_sequence_length()));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % model.vocab());
  return tokens;
}

absl::Status WriteSamples(const v1::ModelSpec& model, uint64_t count, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto writer, IndexedDatasetWriter::Create(path, {.vocab = model.vocab()}));
  // The same everywhere, as distributions of the library are not.
  std::mt19937_64 random(kSeed);
  for (uint64_t sample = 0; sample < count; ++sample) {
    const std::vector<int32_t> input =
        IsEncoderDecoder(model) ? RandomTokens(model, random) : std::vector<int32_t>();
    PENSTOCK_RETURN_IF_ERROR(writer->Add(input, RandomTokens(model, random)));
  }
  return writer->Finish();
}

// Of a run of so many iterations that count, in a folder of its own in `folder`.
UpOptions RunOptions(const RehearsalOptions& options, const std::string& folder, const std::string& name,
                     uint64_t iterations, bool fixed_costs) {
  UpOptions up;
  up.job_id = "rehearsal";
  up.run_dir = absl::StrCat(folder, "/", name);
  up.dataset = absl::StrCat(folder, "/samples");
  up.profile = absl::StrCat(folder, "/profile.json");
  up.given_model = options.file.model();
  up.device = options.device;
  up.threads = options.threads;
  up.global_batch = SamplesOfRank(options.file.model()) * options.workers;
  // The first one is not like the others.
  up.iterations = iterations + 1;
  up.limits.max_length = options.file.model().max_sequence_length();
  up.fixed_costs = fixed_costs;
  up.no_checkpoints = true;
  up.max_restarts = 0;
  up.page_listen = "";
  UseMesh(MeshOfRehearsal(options), &up);
  return up;
}

absl::StatusOr<std::vector<v1::IterationSummary>> Train(UpOptions options) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string programs, FolderOfPrograms({"penstock-planner", "penstock-worker"}));
  const RunConsole silent = RunConsole::Silent();
  StopSignal stop;
  const RunSetupTools tools = {.bin_dir = programs,
                               .say = [](const std::string&) {},
                               .stopped = [&](absl::Duration timeout) { return stop.WaitFor(timeout); }};
  PENSTOCK_ASSIGN_OR_RETURN(RunSetup setup, SetUpRun(std::move(options), tools));
  RunHistory history;
  UpRun run(std::move(programs), std::move(setup), silent, stop, history);
  PENSTOCK_RETURN_IF_ERROR(run.RunProcesses());
  return std::move(history.iterations);
}

// Costs that were fitted to a run, as they are for other runs; nothing: none foretold its iterations better
// than those that it began with.
absl::StatusOr<std::optional<v1::CostProfile>> FittedCosts(const std::string& run_dir) {
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredRun run, ReadMeasuredRun(run_dir));
  if (!run.fitted) return std::nullopt;
  v1::CostProfile& costs = *run.job.mutable_profile();
  costs.clear_slow_ranks();
  costs.clear_slow_links();
  return std::move(costs);
}

// The same costs as high as a run of so many iterations says that is planned with them.
absl::StatusOr<v1::CostProfile> WithLevelOf(const RehearsalOptions& options, const std::string& folder,
                                            uint64_t iterations, const v1::CostProfile& costs) {
  UpOptions up = RunOptions(options, folder, "third", iterations, /*fixed_costs=*/true);
  up.profile = absl::StrCat(folder, "/fitted.json");
  v1::ProfileFile file = options.file;
  *file.mutable_profile() = costs;
  PENSTOCK_RETURN_IF_ERROR(WriteProfileFile(file, up.profile));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::IterationSummary> trained, Train(up));
  PENSTOCK_ASSIGN_OR_RETURN(const double level, TrainingFactorOf(trained));
  return core::WithTrainingFactor(costs, core::ArchitectureOf(options.file.model()), level);
}

// Of so many iterations more, in two runs where there are enough: costs are fitted to the first one, most of
// all to its last iterations, and a machine may be slower in one second than in another.
absl::StatusOr<std::optional<v1::CostProfile>> FitToMore(const RehearsalOptions& options,
                                                         const std::string& folder, uint64_t iterations) {
  if (iterations < kFewestToFit) return std::nullopt;
  const uint64_t behind = iterations / 2 < kFewestToFit ? 0 : iterations / 2;
  const UpOptions up = RunOptions(options, folder, "second", iterations - behind, /*fixed_costs=*/false);
  PENSTOCK_RETURN_IF_ERROR(Train(up).status());
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<v1::CostProfile> fitted, FittedCosts(up.run_dir));
  if (!fitted.has_value()) return std::nullopt;
  fitted->set_version(options.file.profile().version());
  if (behind == 0) return fitted;
  return WithLevelOf(options, folder, behind, *fitted);
}

}  // namespace

v1::Mesh MeshOfRehearsal(const RehearsalOptions& options) {
  const v1::ModelSpec& model = options.file.model();
  if (options.expert > 1 && options.workers % options.expert == 0) {
    return MakeMesh(1, options.workers / options.expert, 1, options.expert, options.expert);
  }
  return options.workers <= core::TotalLayers(model) ? MakeMesh(options.workers, 1, 1, 1)
                                                     : MakeMesh(1, options.workers, 1, 1);
}

uint64_t IterationsLeft(absl::Span<const v1::IterationSummary> iterations, absl::Duration time) {
  double measured_ns = 0;
  for (const v1::IterationSummary& iteration : iterations)
    measured_ns += static_cast<double>(iteration.measured_ns());
  const double left_ns = absl::ToDoubleNanoseconds(time) - measured_ns;
  if (iterations.empty() || left_ns <= 0 || measured_ns <= 0) return 0;
  const double mean_ns = measured_ns / static_cast<double>(iterations.size());
  return static_cast<uint64_t>(std::min(kMostMoreIterations, std::ceil(left_ns / mean_ns)));
}

absl::StatusOr<double> TrainingFactorOf(absl::Span<const v1::IterationSummary> iterations) {
  std::vector<double> ratios;
  for (const v1::IterationSummary& iteration : iterations) {
    if (iteration.iteration() > 0 && iteration.predicted_ns() > 0 && iteration.measured_ns() > 0)
      ratios.push_back(static_cast<double>(iteration.measured_ns()) /
                       static_cast<double>(iteration.predicted_ns()));
  }
  if (ratios.empty()) return absl::UnavailableError("no iteration was measured");
  const double factor = LowerMedian(ratios);
  if (factor < kMostFactor && factor > 1 / kMostFactor) return factor;
  return absl::UnavailableError(
      absl::StrFormat("iterations took %.3g times as long as planned: something else ran on the machine, or "
                      "ranks of so small a model mostly wait",
                      factor));
}

absl::StatusOr<v1::CostProfile> Rehearse(const RehearsalOptions& options) {
  if (options.file.model().has_adapters())
    return absl::UnimplementedError("adapters alone learn, and what they adapt is not there");
  PENSTOCK_ASSIGN_OR_RETURN(const ScratchFolder folder, ScratchFolder::Make("penstock-rehearsal"));
  const UpOptions up = RunOptions(options, folder.path(), "first", options.iterations, /*fixed_costs=*/true);
  PENSTOCK_RETURN_IF_ERROR(WriteProfileFile(options.file, up.profile));
  PENSTOCK_RETURN_IF_ERROR(WriteSamples(options.file.model(), up.iterations * up.global_batch, up.dataset));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::IterationSummary> iterations, Train(up));
  PENSTOCK_ASSIGN_OR_RETURN(const double factor, TrainingFactorOf(iterations));
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<v1::CostProfile> fitted,
                            FitToMore(options, folder.path(), IterationsLeft(iterations, options.time)));
  const v1::CostProfile& alone = options.file.profile();
  if (!fitted.has_value())
    return core::WithTrainingFactor(alone, core::ArchitectureOf(options.file.model()), factor);
  fitted->set_training_factor(factor);
  return *std::move(fitted);
}

}  // namespace penstock::cli
