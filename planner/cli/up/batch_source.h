// Makes global batches from a dataset's index: which samples, and how long they are. Reads no tokens.
//
//   BatchSource source(*dataset, {.global_batch = 64, .max_length = 2048, .seed = 1});
//   v1::Batch batch = source.Make(/*iteration=*/12);
#pragma once

#include <cstdint>

#include "common/dataset/indexed_dataset.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/up/sample_order.h"

namespace penstock::cli {

struct BatchSourceOptions {
  // Samples of one iteration, over all replicas.
  uint32_t global_batch = 0;
  // Longer samples are cut as CutToLimits does (planner/cli/sample_lengths.h).
  uint32_t max_length = 0;
  uint64_t seed = 0;
};

class BatchSource {
 public:
  // `dataset` is not owned and must not be empty.
  BatchSource(const IndexedDataset& dataset, const BatchSourceOptions& options);

  // The batch of an iteration: the same for the same options, whatever was asked before.
  v1::Batch Make(uint64_t iteration);

 private:
  const IndexedDataset& dataset_;
  BatchSourceOptions options_;
  SampleOrder order_;
};

}  // namespace penstock::cli
