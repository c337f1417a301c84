#include "planner/cli/up/run_validation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/dataset/named_datasets.h"
#include "common/status/status_macros.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {
namespace {

ValidationOptions EvaluationsOf(const RunSetup& setup, const std::string& bin_dir) {
  const LengthLimits limits = CutOf(setup.options, setup.job.model().architecture()).limits;
  return {.worker = absl::StrCat(bin_dir, "/penstock-worker"),
          .run_dir = setup.folder.path,
          .datasets = WithAbsolutePaths(setup.options.validation),
          .samples = setup.options.validation_samples,
          .max_length = std::max({limits.max_length, limits.max_input, limits.max_target}),
          .device = setup.options.validation_device,
          .first_iteration = setup.folder.first_iteration};
}

}  // namespace

absl::StatusOr<RunValidation> RunValidation::Open(const RunSetup& setup, const std::string& bin_dir) {
  RunValidation validation;
  if (setup.options.validation.empty()) return validation;
  if (!ValidatesOnRanks(setup.options)) {
    PENSTOCK_ASSIGN_OR_RETURN(validation.beside_, Validation::Open(EvaluationsOf(setup, bin_dir)));
    return validation;
  }
  PENSTOCK_ASSIGN_OR_RETURN(BestCheckpoint best,
                            BestCheckpoint::Open(setup.folder.path, setup.folder.first_iteration));
  const auto& tasks = setup.job.tasks();
  validation.on_ranks_ = std::make_unique<RankValidation>(
      std::vector<std::string>(tasks.begin(), tasks.end()), setup.folder.checkpoints, std::move(best));
  return validation;
}

std::optional<ValidatedCheckpoint> RunValidation::Add(const v1::IterationSummary& iteration) {
  return on_ranks_ == nullptr ? std::nullopt : on_ranks_->Add(iteration);
}

absl::StatusOr<std::optional<ValidatedCheckpoint>> RunValidation::Step() {
  if (on_ranks_ != nullptr) PENSTOCK_RETURN_IF_ERROR(on_ranks_->Keep());
  if (beside_ == nullptr) return std::nullopt;
  return beside_->Step();
}

bool RunValidation::IsOutOfPatience(uint32_t patience) const {
  return patience > 0 && best() != nullptr && best()->worse_in_a_row() >= patience;
}

const BestCheckpoint* RunValidation::best() const {
  if (on_ranks_ != nullptr) return &on_ranks_->best();
  return beside_ == nullptr ? nullptr : &beside_->best();
}

std::optional<ValidatedCheckpoint> RunValidation::kept() const {
  if (on_ranks_ != nullptr) return on_ranks_->kept();
  return beside_ == nullptr ? std::nullopt : beside_->best().best();
}

std::string DescribeValidation(const ValidatedCheckpoint& checkpoint) {
  const std::string tasks =
      absl::StrJoin(checkpoint.tasks, ", ", [](std::string* text, const TaskLoss& task) {
        absl::StrAppendFormat(text, "%s %.4f", task.task, task.loss);
      });
  return absl::StrFormat("validation after iteration %d: loss %.4f%s%s", checkpoint.next_iteration - 1,
                         checkpoint.loss, tasks.empty() ? "" : absl::StrCat(" (", tasks, ")"),
                         checkpoint.best ? ", the best so far" : "");
}

}  // namespace penstock::cli
