#include "planner/cli/up/proposed_strategies.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/pool_report.h"
#include "planner/cli/advise/side_by_side.h"
#include "planner/cli/advise/strategy_pool.h"
#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

// Enough to meet the lengths that come, and planned in seconds.
constexpr uint64_t kBatches = 8;

// Ranks validate on a single mesh: where none is among those that are chosen, the fastest one joins them.
absl::Status AddOneToValidateOn(const v1::JobSpec& job, std::vector<v1::Strategy> tried,
                                absl::Span<const v1::Batch> batches, TaskPool* threads,
                                std::vector<v1::Strategy>* chosen) {
  const auto is_one_mesh = [](const v1::Strategy& strategy) { return strategy.meshes_size() == 1; };
  if (std::ranges::any_of(*chosen, is_one_mesh)) return absl::OkStatus();
  std::erase_if(tried, [&](const v1::Strategy& strategy) { return !is_one_mesh(strategy); });
  absl::StatusOr<StrategyAlone> fastest = absl::ResourceExhaustedError("none uses all of the ranks");
  if (!tried.empty()) fastest = FastestAlone(WithParameterShares(job), tried, batches, threads);
  if (!fastest.ok()) {
    return absl::Status(fastest.status().code(),
                        absl::StrCat("--validate-every and --strategies auto: ranks validate on a single "
                                     "mesh; leave --validate-every out: ",
                                     fastest.status().message()));
  }
  chosen->push_back(fastest->strategy);
  return absl::OkStatus();
}

}  // namespace

bool ProposesStrategies(const UpOptions& options) { return options.strategies_text == kProposedStrategies; }

std::vector<uint32_t> TensorDegreesFor(const v1::ModelSpec& model, uint32_t ranks) {
  std::vector<uint32_t> degrees;
  for (uint32_t degree = 1; degree <= ranks; degree *= 2) {
    if (ranks % degree == 0 && model.heads() % degree == 0 && model.ffn() % degree == 0)
      degrees.push_back(degree);
  }
  return degrees;
}

absl::Status AddProposedStrategies(const UpOptions& options, const RunData& data, const RunSetupTools& tools,
                                   v1::JobSpec* job) {
  if (!ProposesStrategies(options)) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> source,
                            data.MakeBatches(options, job->model().architecture()));
  std::vector<v1::Batch> batches;
  for (uint64_t i = 0; i < kBatches; ++i) batches.push_back(source->Make(job->first_iteration() + i));
  TaskPool threads(DefaultThreads());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Strategy> strategies,
                            StrategiesToTry(*job, WorkerCount(options), batches, {}, &threads));
  PENSTOCK_ASSIGN_OR_RETURN(const StrategyPool pool, ProposePool(*job, strategies, batches, {}, &threads));
  tools.say(absl::StrCat("strategies for the first ", kBatches, " batches:\n", PoolText(pool)));
  std::vector<v1::Strategy> chosen = StrategiesOf(pool);
  if (ValidatesOnRanks(options)) {
    PENSTOCK_RETURN_IF_ERROR(AddOneToValidateOn(*job, strategies, batches, &threads, &chosen));
    if (chosen.size() > pool.strategies.size())
      tools.say(absl::StrCat("and, to validate on: ", StrategyName(chosen.back())));
  }
  SetStrategies(chosen, job);
  return absl::OkStatus();
}

}  // namespace penstock::cli
