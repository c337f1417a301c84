// Validation on the ranks of the job: which samples, after which iterations, and what was found.
//
//   PENSTOCK_ASSIGN_OR_RETURN(v1::Batch validation, ValidationBatch(datasets, options));
//   ValidatedBatches source(std::move(batches), std::move(validation), {.every = 50, .iterations = 300});
//   ... a feeder takes batches from it, some of which have a validation ...
//   RankValidation found(tasks, checkpoints_folder, std::move(best));
//   found.Add(summary);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/best_checkpoint.h"

namespace penstock::cli {

// A dataset of --validation.
struct ValidationData {
  std::string path;
  const IndexedDataset* dataset = nullptr;
  // Index into JobSpec.tasks of what it teaches; 0 where losses are not told apart.
  uint32_t task = 0;
};

struct ValidationBatchOptions {
  // Of each dataset, spread over it as `penstock evaluate` takes them; 0: all.
  uint64_t samples = 0;
  // Samples that are trained on: theirs are behind them (common/dataset/joined_dataset.h).
  uint64_t first_id = 0;
  SampleCut cut;
};

// Its iteration is not set. Possible errors: those of reading weights; INVALID_ARGUMENT, naming --validation:
// the cut leaves nothing of a dataset.
absl::StatusOr<v1::Batch> ValidationBatch(const std::vector<ValidationData>& datasets,
                                          const ValidationBatchOptions& options);

struct ValidationTimes {
  // After every so many iterations, and after the last of `iterations` (0: there is none).
  uint64_t every = 1;
  uint64_t iterations = 0;

  bool IsDue(uint64_t iteration) const {
    return (iteration + 1) % every == 0 || (iterations > 0 && iteration + 1 == iterations);
  }
};

// Batches of `source`, some of them with the validation.
class ValidatedBatches : public BatchSource {
 public:
  ValidatedBatches(std::unique_ptr<BatchSource> source, v1::Batch validation, ValidationTimes times)
      : source_(std::move(source)), validation_(std::move(validation)), times_(times) {}

  v1::Batch Make(uint64_t iteration) override;

 private:
  const std::unique_ptr<BatchSource> source_;
  const v1::Batch validation_;
  const ValidationTimes times_;
};

// Whether the ranks of a job can validate: on one of its strategies that is a single mesh. Possible errors:
// INVALID_ARGUMENT, naming the flags.
absl::Status CheckRanksCanValidate(const v1::JobSpec& job);

// Names of the tasks that JobSpec.tasks has where datasets of validation are told apart: those of the
// mixture, or one for all that is trained on, and behind them those that only validation has. Empty: nothing
// is told apart.
std::vector<std::string> TasksWithValidation(std::vector<std::string> mixture,
                                             const std::vector<std::string>& validation);

// What was found, and the best checkpoint of it: of those parameters that were validated and written as a
// checkpoint the ones of the least loss are kept, as soon as it is complete.
class RankValidation {
 public:
  // `tasks`: JobSpec.tasks.
  RankValidation(std::vector<std::string> tasks, std::string checkpoints, BestCheckpoint best)
      : tasks_(std::move(tasks)),
        checkpoints_(std::move(checkpoints)),
        best_(std::move(best)),
        kept_(best_.best()) {}

  // Nothing: the iteration had no validation.
  std::optional<ValidatedCheckpoint> Add(const v1::IterationSummary& iteration);

  // Keeps a better checkpoint where one has been completed. Does not wait for it. Possible errors: those of
  // BestCheckpoint::Copy and KeepCopy; it is not tried again.
  absl::Status Keep();

  // What best_.best() says is of all validations: also of parameters that no checkpoint has.
  const BestCheckpoint& best() const { return best_; }
  // What is in best().folder(); nothing: no checkpoint was kept.
  const std::optional<ValidatedCheckpoint>& kept() const { return kept_; }

 private:
  bool IsBetterThanKept(const ValidatedCheckpoint& checkpoint) const;

  const std::vector<std::string> tasks_;
  const std::string checkpoints_;
  BestCheckpoint best_;
  // Better than what is kept, and their checkpoints may be complete soon.
  std::vector<ValidatedCheckpoint> wanted_;
  std::optional<ValidatedCheckpoint> kept_;
};

}  // namespace penstock::cli
