#include "planner/cli/up/batch_source.h"

#include <utility>

#include "planner/cli/up/sample_order.h"

namespace penstock::cli {
namespace {

void AddSample(uint64_t id, const SampleLength& length, const SampleCut& cut, v1::Batch& batch) {
  const SampleLength shown = CutToLimits(length, cut.architecture, cut.limits);
  v1::Sample& sample = *batch.add_samples();
  sample.set_sample_id(id);
  sample.set_input_tokens(shown.input);
  sample.set_target_tokens(shown.target);
}

class Shuffled : public BatchSource {
 public:
  Shuffled(const IndexedDataset& dataset, const ShuffleOptions& options)
      : dataset_(dataset), options_(options), order_(dataset.size(), options.seed) {}

  v1::Batch Make(uint64_t iteration) override {
    v1::Batch batch;
    batch.set_iteration(iteration);
    const uint64_t first = iteration * options_.global_batch;
    for (uint32_t i = 0; i < options_.global_batch; ++i) {
      const uint64_t id = order_.At(first + i);
      AddSample(id, dataset_.Length(id), options_.cut, batch);
    }
    return batch;
  }

 private:
  const IndexedDataset& dataset_;
  const ShuffleOptions options_;
  SampleOrder order_;
};

class Rows : public BatchSource {
 public:
  Rows(std::vector<SampleLength> rows, RowRange first, const SampleCut& cut)
      : rows_(std::move(rows)), first_(first), cut_(cut) {}

  v1::Batch Make(uint64_t iteration) override {
    v1::Batch batch;
    batch.set_iteration(iteration);
    for (uint64_t i = 0; i < first_.size(); ++i) {
      const uint64_t row = (first_.first + iteration * first_.size() + i) % rows_.size();
      AddSample(row, rows_[row], cut_, batch);
    }
    return batch;
  }

 private:
  const std::vector<SampleLength> rows_;
  const RowRange first_;
  const SampleCut cut_;
};

}  // namespace

std::unique_ptr<BatchSource> ShuffledBatches(const IndexedDataset& dataset, const ShuffleOptions& options) {
  return std::make_unique<Shuffled>(dataset, options);
}

std::unique_ptr<BatchSource> RowBatches(std::vector<SampleLength> rows, RowRange first,
                                        const SampleCut& cut) {
  return std::make_unique<Rows>(std::move(rows), first, cut);
}

}  // namespace penstock::cli
