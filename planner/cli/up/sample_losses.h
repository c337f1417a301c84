// What the samples of a dataset with weights (IndexedDataset::has_weights) weigh in the loss, as they are
// cut.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"
#include "planner/cli/sample_lengths.h"
#include "planner/cli/up/batch_source.h"

namespace penstock::cli {

// One for each sample; of one that is dropped, nothing.
using SampleLosses = std::vector<SampleLoss>;

// Reads all weights, which are a byte a token or four. Possible errors: those of
// IndexedDataset::TargetWeights.
absl::StatusOr<SampleLosses> ReadSampleLosses(const IndexedDataset& dataset, const SampleCut& cut);

// Reads them once. Not thread-safe.
class KeptSampleLosses {
 public:
  // Null: the dataset has no weights. Possible errors: those of ReadSampleLosses.
  absl::StatusOr<std::shared_ptr<const SampleLosses>> Of(const IndexedDataset& dataset, const SampleCut& cut);

 private:
  std::optional<SampleCut> cut_;
  std::shared_ptr<const SampleLosses> losses_;
};

}  // namespace penstock::cli
