// Where the sample lengths of a run come from: a token dataset, a mixture of several (tasks), or a CSV file
// of lengths.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"
#include "common/dataset/named_datasets.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/sample_lengths.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/run_outlook.h"
#include "planner/cli/up/run_record.h"
#include "planner/cli/up/sample_losses.h"
#include "planner/cli/up/task_counts.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

// Of all samples, before and after they are cut.
struct CutSummary {
  uint64_t samples = 0;
  uint64_t tokens = 0;
  uint64_t cut_samples = 0;
  uint64_t dropped_samples = 0;
  // Of both.
  uint64_t lost_tokens = 0;
  // Of what is left: positions with a loss, and samples without one.
  uint64_t learnt_tokens = 0;
  uint64_t samples_with_nothing_to_learn = 0;
  // Of an encoder-decoder: samples whose encoder reads nothing.
  uint64_t samples_without_input = 0;
};

CutSummary& operator+=(CutSummary& sum, const CutSummary& other);

// Lines for people.
std::string DescribeCut(const CutSummary& summary);

// A dataset of a mixture; one that is alone is a task, too.
struct DataTask {
  std::string name;
  // Of all samples, at most 1.
  double share = 0;
  std::string path;
  std::unique_ptr<IndexedDataset> dataset;
  // Where it has weights of tokens.
  std::unique_ptr<KeptSampleLosses> losses = std::make_unique<KeptSampleLosses>();
};

class RunData {
 public:
  // Possible errors: NOT_FOUND, INVALID_ARGUMENT, OUT_OF_RANGE, naming the flag or the file.
  static absl::StatusOr<RunData> Open(const UpOptions& options);

  // The size of the vocabulary: as asked for, or just large enough for the dataset.
  // Possible errors: INVALID_ARGUMENT, naming --vocab.
  absl::StatusOr<uint32_t> Vocab(const UpOptions& options) const;

  // Whether every token is below `vocab`.
  // Possible errors: INVALID_ARGUMENT, naming `flag`, which gave the model, and the dataset.
  absl::Status CheckVocab(absl::string_view flag, uint32_t vocab) const;

  // The same of the datasets of --validation. Possible errors: those of IndexedDataset::Open,
  // INVALID_ARGUMENT, naming --validation.
  static absl::Status CheckValidation(const std::vector<NamedDataset>& datasets, uint32_t vocab);

  // What the limits of length leave of the data. Possible errors: INVALID_ARGUMENT, naming --cut (nothing is
  // left, of a mixture nothing of a task) or --mix (an encoder-decoder's task without any input).
  absl::StatusOr<CutSummary> SummarizeCut(const UpOptions& options, v1::Architecture architecture) const;
  // The same of one task. Possible errors: those of reading the dataset's weights.
  static absl::StatusOr<CutSummary> SummarizeTask(const DataTask& task, const SampleCut& cut);

  // What distinguishes this data from other: all lengths, and the tokens of samples spread over the dataset.
  // Possible errors: those of reading the dataset.
  absl::StatusOr<DataRecord> Describe(const UpOptions& options, v1::Architecture architecture) const;

  // Of all that there are.
  uint64_t samples() const;
  // Empty with rows of a file of lengths.
  const std::vector<DataTask>& tasks() const { return tasks_; }
  // Of a mixture; empty: there is none. Possible errors: those of SummarizeTask.
  absl::StatusOr<std::vector<TaskOutlook>> OutlookOfTasks(const SampleCut& cut) const;
  std::vector<TaskEnd> TaskEnds() const;

  // Names of a mixture's tasks; empty: there is none.
  std::vector<std::string> TaskNames() const;
  // What the job has: with --validate-every also the tasks of validation (TasksWithValidation).
  std::vector<std::string> JobTasks(const UpOptions& options) const;

  // This object must outlive the source. Possible errors: those of reading the dataset's weights.
  absl::StatusOr<std::unique_ptr<BatchSource>> MakeBatches(const UpOptions& options,
                                                           v1::Architecture architecture) const;
  // The same, with what --validate-every has the ranks validate (rank_validation.h). `iterations`: of the
  // run; 0: it has no last one. Possible errors: those of ValidationBatch and IndexedDataset::Open, too.
  absl::StatusOr<std::unique_ptr<BatchSource>> MakeFedBatches(const UpOptions& options,
                                                              v1::Architecture architecture,
                                                              uint64_t iterations) const;
  // How many tokens are learnt of the samples of such batches. Possible errors: the same.
  absl::StatusOr<LearntOf> MakeLearntCounter(const UpOptions& options, v1::Architecture architecture) const;

 private:
  // What is validated, of --validation.
  absl::StatusOr<v1::Batch> MakeValidation(const UpOptions& options, v1::Architecture architecture) const;
  // Of --dataset or --mix.
  absl::Status OpenTasks(const UpOptions& options);
  absl::Status CheckTokenizers() const;
  // Of each task, one for each of its samples; where no task has weights of tokens all are null.
  absl::StatusOr<std::vector<std::shared_ptr<const SampleLosses>>> LossesOfTasks(const SampleCut& cut) const;

  // One of the two.
  std::vector<DataTask> tasks_;
  bool mixed_ = false;
  std::vector<SampleLength> rows_;
  RowRange first_;
};

}  // namespace penstock::cli
