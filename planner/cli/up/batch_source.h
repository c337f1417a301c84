// Makes global batches of sample lengths: which samples, and how long they are. Reads no tokens.
//
//   const std::unique_ptr<BatchSource> source = ShuffledBatches(*dataset, {.global_batch = 64, .seed = 1,
//   .cut = cut}); v1::Batch batch = source->Make(/*iteration=*/12);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/dataset/indexed_dataset.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/sample_lengths.h"

namespace penstock::cli {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The batch of an iteration: the same for the same source, whatever was asked before.
  virtual v1::Batch Make(uint64_t iteration) = 0;
};

// How samples are cut (CutToLimits, planner/cli/sample_lengths.h).
struct SampleCut {
  v1::Architecture architecture = v1::ARCHITECTURE_GPT;
  LengthLimits limits;

  bool operator==(const SampleCut&) const = default;
};

struct ShuffleOptions {
  // Samples of one iteration, over all replicas.
  uint32_t global_batch = 0;
  uint64_t seed = 0;
  SampleCut cut;
};

// A dataset and its weight beside others.
struct WeightedDataset {
  const IndexedDataset* dataset = nullptr;
  double weight = 1;
  // Of each sample, where a dataset of the mixture has weights of tokens; null: none has.
  std::shared_ptr<const std::vector<SampleLoss>> losses = nullptr;
};

// Of each dataset a fresh shuffle of all samples in each epoch of its own, but those that the cut leaves out:
// batches are full. Which samples of a batch are of which dataset says MixtureOrder (mixture_order.h).
// Samples of the first dataset have their own ids, those of the next ones ids behind them (joined_dataset.h).
// Each dataset must outlive the source and hold a sample that is not left out; weights are 0 or more, one
// above 0. Of several datasets samples name their task, in this order.
std::unique_ptr<BatchSource> MixedBatches(const std::vector<WeightedDataset>& datasets,
                                          const ShuffleOptions& options);

// The same of one dataset.
std::unique_ptr<BatchSource> ShuffledBatches(const IndexedDataset& dataset, const ShuffleOptions& options);

// The rows of a file of lengths in their order: `first` is the first batch, as many rows after it the second,
// and so on; behind the last row comes the first one again. `rows` are all of the file, and hold `first`.
// Samples are named by their row; of a batch, those that the cut leaves out are missing.
std::unique_ptr<BatchSource> RowBatches(std::vector<SampleLength> rows, RowRange first, const SampleCut& cut);

}  // namespace penstock::cli
