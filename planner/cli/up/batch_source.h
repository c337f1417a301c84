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
};

struct ShuffleOptions {
  // Samples of one iteration, over all replicas.
  uint32_t global_batch = 0;
  uint64_t seed = 0;
  SampleCut cut;
};

// A fresh shuffle of all samples in each epoch, but those that the cut leaves out: batches are full.
// `dataset` must outlive the source and hold a sample that is not left out.
std::unique_ptr<BatchSource> ShuffledBatches(const IndexedDataset& dataset, const ShuffleOptions& options);

// The rows of a file of lengths in their order: `first` is the first batch, as many rows after it the second,
// and so on; behind the last row comes the first one again. `rows` are all of the file, and hold `first`.
// Samples are named by their row; of a batch, those that the cut leaves out are missing.
std::unique_ptr<BatchSource> RowBatches(std::vector<SampleLength> rows, RowRange first, const SampleCut& cut);

}  // namespace penstock::cli
