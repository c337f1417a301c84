#include "planner/cli/up/batch_source.h"

#include <algorithm>

namespace penstock::cli {

BatchSource::BatchSource(const IndexedDataset& dataset, const BatchSourceOptions& options)
    : dataset_(dataset), options_(options), order_(dataset.size(), options.seed) {}

v1::Batch BatchSource::Make(uint64_t iteration) {
  v1::Batch batch;
  batch.set_iteration(iteration);
  const uint64_t first = iteration * options_.global_batch;
  for (uint32_t i = 0; i < options_.global_batch; ++i) {
    const uint64_t id = order_.At(first + i);
    const SampleLength length = dataset_.Length(id);
    v1::Sample* sample = batch.add_samples();
    sample->set_sample_id(id);
    sample->set_input_tokens(std::min(length.input, options_.max_length));
    sample->set_target_tokens(std::min(length.target, options_.max_length - sample->input_tokens()));
  }
  return batch;
}

}  // namespace penstock::cli
