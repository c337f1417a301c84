// Where the sample lengths of a run come from: a token dataset, or a CSV file of lengths.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/sample_lengths.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/run_record.h"
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

// Lines for people.
std::string DescribeCut(const CutSummary& summary);

class RunData {
 public:
  // Possible errors: NOT_FOUND, INVALID_ARGUMENT, OUT_OF_RANGE, naming the flag or the file.
  static absl::StatusOr<RunData> Open(const UpOptions& options);

  // The size of the vocabulary: as asked for, or just large enough for the dataset.
  // Possible errors: INVALID_ARGUMENT, naming --vocab.
  absl::StatusOr<uint32_t> Vocab(const UpOptions& options) const;

  // Whether every token of the dataset is below `vocab`.
  // Possible errors: INVALID_ARGUMENT, naming `flag`, which gave the model.
  absl::Status CheckVocab(absl::string_view flag, uint32_t vocab) const;

  // The same of the dataset of --validation, if there is one. Possible errors: those of IndexedDataset::Open,
  // INVALID_ARGUMENT, naming --validation.
  static absl::Status CheckValidation(const std::string& dataset, uint32_t vocab);

  // What the limits of length leave of the data. Possible errors: INVALID_ARGUMENT, naming --cut (nothing).
  absl::StatusOr<CutSummary> SummarizeCut(const UpOptions& options, v1::Architecture architecture) const;

  // What distinguishes this data from other: all lengths, and the tokens of samples spread over the dataset.
  // Possible errors: those of reading the dataset.
  absl::StatusOr<DataRecord> Describe(const UpOptions& options, v1::Architecture architecture) const;

  // Of all that there are.
  uint64_t samples() const { return dataset_ != nullptr ? dataset_->size() : rows_.size(); }

  // This object must outlive the source.
  std::unique_ptr<BatchSource> MakeBatches(const UpOptions& options, v1::Architecture architecture) const;

 private:
  // One of the two.
  std::unique_ptr<IndexedDataset> dataset_;
  std::vector<SampleLength> rows_;
  RowRange first_;
};

}  // namespace penstock::cli
