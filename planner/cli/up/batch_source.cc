#include "planner/cli/up/batch_source.h"

#include <optional>
#include <utility>

#include "planner/cli/up/sample_order.h"

namespace penstock::cli {
namespace {

void AddSample(uint64_t id, const SampleLength& length, const SampleCut& cut, v1::Batch& batch) {
  const std::optional<SampleLength> left = CutToLimits(length, cut.architecture, cut.limits);
  if (!left.has_value()) return;
  v1::Sample& sample = *batch.add_samples();
  sample.set_sample_id(id);
  sample.set_input_tokens(left->input);
  sample.set_target_tokens(left->target);
}

// The samples that are not left out; empty: all of them.
std::vector<uint64_t> KeptSamples(const IndexedDataset& dataset, const SampleCut& cut) {
  std::vector<uint64_t> kept;
  if (cut.limits.cut != Cut::kDrop) return kept;
  for (uint64_t id = 0; id < dataset.size(); ++id)
    if (CutToLimits(dataset.Length(id), cut.architecture, cut.limits).has_value()) kept.push_back(id);
  return kept;
}

class Shuffled : public BatchSource {
 public:
  Shuffled(const IndexedDataset& dataset, const ShuffleOptions& options)
      : dataset_(dataset),
        options_(options),
        kept_(KeptSamples(dataset, options.cut)),
        order_(kept_.empty() ? dataset.size() : kept_.size(), options.seed) {}

  v1::Batch Make(uint64_t iteration) override {
    v1::Batch batch;
    batch.set_iteration(iteration);
    const uint64_t first = iteration * options_.global_batch;
    for (uint32_t i = 0; i < options_.global_batch; ++i) {
      const uint64_t place = order_.At(first + i);
      const uint64_t id = kept_.empty() ? place : kept_[place];
      AddSample(id, dataset_.Length(id), options_.cut, batch);
    }
    return batch;
  }

 private:
  const IndexedDataset& dataset_;
  const ShuffleOptions options_;
  const std::vector<uint64_t> kept_;
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
