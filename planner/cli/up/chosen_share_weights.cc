#include "planner/cli/up/chosen_share_weights.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/share_weights_flag.h"
#include "planner/cli/up/batch_source.h"

namespace penstock::cli {
namespace {

// Each is planned several times. Memory goes by the longest samples, of which some batches have more.
constexpr uint64_t kBatchesForWeights = 4;

}  // namespace

absl::Status AddChosenShareWeights(const UpOptions& options, const RunData& data, const RunSetupTools& tools,
                                   v1::JobSpec* job) {
  const ShareWeightsFlag& flag = options.planning.share_weights;
  if (!flag.choose) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> source,
                            data.MakeBatches(options, job->model().architecture()));
  std::vector<v1::Batch> batches;
  for (uint64_t i = 0; i < kBatchesForWeights; ++i)
    batches.push_back(source->Make(job->first_iteration() + i));
  TaskPool threads(DefaultThreads());
  const absl::StatusOr<std::string> said = ChooseWeightsOfShares(flag, batches, threads.AsFunction(), job);
  PENSTOCK_RETURN_IF_ERROR(NameFlags(said.status()));
  tools.say(*said);
  return absl::OkStatus();
}

}  // namespace penstock::cli
