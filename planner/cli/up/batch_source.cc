#include "planner/cli/up/batch_source.h"

#include "planner/cli/sample_lengths.h"

namespace penstock::cli {

BatchSource::BatchSource(const IndexedDataset& dataset, const BatchSourceOptions& options)
    : dataset_(dataset), options_(options), order_(dataset.size(), options.seed) {}

v1::Batch BatchSource::Make(uint64_t iteration) {
  v1::Batch batch;
  batch.set_iteration(iteration);
  const uint64_t first = iteration * options_.global_batch;
  for (uint32_t i = 0; i < options_.global_batch; ++i) {
    const uint64_t id = order_.At(first + i);
    const SampleLength length =
        CutToLimits(dataset_.Length(id), v1::ARCHITECTURE_GPT,
                    {.max_length = options_.max_length, .max_input = 0, .max_target = 0});
    v1::Sample* sample = batch.add_samples();
    sample->set_sample_id(id);
    sample->set_input_tokens(length.input);
    sample->set_target_tokens(length.target);
  }
  return batch;
}

}  // namespace penstock::cli
