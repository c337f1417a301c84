#include "planner/cli/up/rank_validation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/up/sample_losses.h"

namespace penstock::cli {
namespace {

// What the samples of all data that is trained on are, where validation is told apart and training is not.
constexpr const char* kTraining = "training";

// `losses`: of its samples; null: none of the datasets has weights. Returns how many samples were added.
uint64_t AddSpread(const ValidationData& data, const ValidationBatchOptions& options, uint64_t first_id,
                   const SampleLosses* losses, v1::Batch& batch) {
  const uint64_t size = data.dataset->size();
  const uint64_t count = options.samples == 0 ? size : std::min(options.samples, size);
  uint64_t added = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t index = i * size / count;
    const std::optional<SampleLength> left =
        CutToLimits(data.dataset->Length(index), options.cut.architecture, options.cut.limits);
    if (!left.has_value()) continue;
    v1::Sample& sample = *batch.add_samples();
    sample.set_sample_id(first_id + index);
    sample.set_input_tokens(left->input);
    sample.set_target_tokens(left->target);
    sample.set_task(data.task);
    if (losses != nullptr) sample.set_loss_weight((*losses)[index].weight);
    ++added;
  }
  return added;
}

bool HasWeights(const ValidationData& data) { return data.dataset->has_weights(); }

}  // namespace

absl::Status CheckRanksCanValidate(const v1::JobSpec& job) {
  const auto is_one_mesh = [](const v1::Strategy& strategy) { return strategy.meshes_size() == 1; };
  if (job.strategies().empty() || std::ranges::any_of(job.strategies(), is_one_mesh)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--validate-every and --strategies: ranks validate on a strategy of one mesh, and all of these are "
      "meshes side by side; add one of a single mesh to --strategies, or leave --validate-every out");
}

absl::StatusOr<v1::Batch> ValidationBatch(const std::vector<ValidationData>& datasets,
                                          const ValidationBatchOptions& options) {
  // The loss is divided by weights or by positions: all samples have weights, or none.
  const bool weighted = std::ranges::any_of(datasets, HasWeights);
  v1::Batch batch;
  uint64_t first_id = options.first_id;
  for (const ValidationData& data : datasets) {
    SampleLosses losses;
    if (weighted) {
      PENSTOCK_ASSIGN_OR_RETURN(losses, ReadSampleLosses(*data.dataset, options.cut));
    }
    if (AddSpread(data, options, first_id, weighted ? &losses : nullptr, batch) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("--validation: nothing is left of '", data.path,
                                                     "': every sample is longer than --max-length"));
    }
    first_id += data.dataset->size();
  }
  return batch;
}

v1::Batch ValidatedBatches::Make(uint64_t iteration) {
  v1::Batch batch = source_->Make(iteration);
  if (!times_.IsDue(iteration)) return batch;
  *batch.mutable_validation() = validation_;
  batch.mutable_validation()->set_iteration(iteration);
  return batch;
}

std::vector<std::string> TasksWithValidation(std::vector<std::string> mixture,
                                             const std::vector<std::string>& validation) {
  if (validation.size() < 2) return mixture;
  std::vector<std::string> tasks = std::move(mixture);
  if (tasks.empty()) tasks.emplace_back(kTraining);
  for (const std::string& name : validation)
    if (std::ranges::find(tasks, name) == tasks.end()) tasks.push_back(name);
  return tasks;
}

std::optional<ValidatedCheckpoint> RankValidation::Add(const v1::IterationSummary& iteration) {
  if (!iteration.has_validation()) return std::nullopt;
  const v1::ValidationSummary& found = iteration.validation();
  ValidatedCheckpoint checkpoint = {
      .next_iteration = iteration.iteration() + 1, .loss = found.loss(), .tokens = found.loss_tokens()};
  for (const v1::TaskLoss& task : found.tasks()) {
    // One that is alone is the whole.
    if (found.tasks_size() == 1 || task.task() >= tasks_.size()) continue;
    checkpoint.tasks.push_back(
        {.task = tasks_[task.task()], .loss = task.loss(), .tokens = static_cast<uint64_t>(task.weight())});
  }
  best_.Judge(checkpoint);
  if (IsBetterThanKept(checkpoint)) wanted_.push_back(checkpoint);
  return checkpoint;
}

bool RankValidation::IsBetterThanKept(const ValidatedCheckpoint& checkpoint) const {
  return kept_.has_value() ? checkpoint.loss < kept_->loss : !std::isnan(checkpoint.loss);
}

absl::Status RankValidation::Keep() {
  if (wanted_.empty()) return absl::OkStatus();
  const std::vector<uint64_t> complete = CompleteCheckpoints(checkpoints_);
  if (complete.empty()) return absl::OkStatus();
  std::optional<ValidatedCheckpoint> best;
  for (const ValidatedCheckpoint& checkpoint : wanted_) {
    const bool there = std::ranges::find(complete, checkpoint.next_iteration) != complete.end();
    if (there && (!best.has_value() || checkpoint.loss < best->loss)) best = checkpoint;
  }
  // Of iterations before the newest one no other checkpoint will come.
  const uint64_t newest = std::ranges::max(complete);
  std::erase_if(wanted_, [newest](const auto& checkpoint) { return checkpoint.next_iteration <= newest; });
  if (!best.has_value() || !IsBetterThanKept(*best)) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(best_.Copy(best->next_iteration));
  PENSTOCK_RETURN_IF_ERROR(best_.KeepCopy(*best));
  kept_ = best;
  return absl::OkStatus();
}

}  // namespace penstock::cli
