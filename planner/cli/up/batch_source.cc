#include "planner/cli/up/batch_source.h"

#include <optional>
#include <utility>

#include "planner/cli/up/mixture_order.h"
#include "planner/cli/up/sample_order.h"
#include "planner/core/search/split_mix.h"

namespace penstock::cli {
namespace {

// Null: it is left out.
v1::Sample* AddSample(uint64_t id, const SampleLength& length, const SampleCut& cut, v1::Batch& batch) {
  const std::optional<SampleLength> left = CutToLimits(length, cut.architecture, cut.limits);
  if (!left.has_value()) return nullptr;
  v1::Sample& sample = *batch.add_samples();
  sample.set_sample_id(id);
  sample.set_input_tokens(left->input);
  sample.set_target_tokens(left->target);
  return &sample;
}

// The samples that are not left out; empty: all of them.
std::vector<uint64_t> KeptSamples(const IndexedDataset& dataset, const SampleCut& cut) {
  std::vector<uint64_t> kept;
  if (cut.limits.cut != Cut::kDrop) return kept;
  for (uint64_t id = 0; id < dataset.size(); ++id)
    if (CutToLimits(dataset.Length(id), cut.architecture, cut.limits).has_value()) kept.push_back(id);
  return kept;
}

// The samples of one dataset in the order of their epochs.
class Walk {
 public:
  // `first_id`: of the dataset's first sample.
  Walk(const WeightedDataset& weighted, uint32_t task, uint64_t first_id, uint64_t seed, const SampleCut& cut)
      : dataset_(*weighted.dataset),
        losses_(weighted.losses),
        task_(task),
        first_id_(first_id),
        cut_(cut),
        kept_(KeptSamples(dataset_, cut)),
        order_(kept_.empty() ? dataset_.size() : kept_.size(), seed) {}

  void AddSampleAt(uint64_t position, v1::Batch& batch) {
    const uint64_t place = order_.At(position);
    const uint64_t sample = kept_.empty() ? place : kept_[place];
    v1::Sample* const added = AddSample(first_id_ + sample, dataset_.Length(sample), cut_, batch);
    if (added == nullptr) return;
    added->set_task(task_);
    if (losses_ != nullptr) added->set_loss_weight((*losses_)[sample].weight);
  }

 private:
  const IndexedDataset& dataset_;
  const std::shared_ptr<const std::vector<SampleLoss>> losses_;
  const uint32_t task_;
  const uint64_t first_id_;
  const SampleCut cut_;
  const std::vector<uint64_t> kept_;
  SampleOrder order_;
};

// Datasets of the same size are shuffled differently.
uint64_t SeedOf(size_t task, uint64_t seed) {
  return task == 0 ? seed : core::SplitMix(seed ^ (task * 0xbf58476d1ce4e5b9ULL)).Next();
}

std::vector<double> WeightsOf(const std::vector<WeightedDataset>& datasets) {
  std::vector<double> weights;
  for (const WeightedDataset& dataset : datasets) weights.push_back(dataset.weight);
  return weights;
}

class Mixed : public BatchSource {
 public:
  Mixed(const std::vector<WeightedDataset>& datasets, const ShuffleOptions& options)
      : order_(WeightsOf(datasets), options.global_batch, options.seed) {
    uint64_t first_id = 0;
    for (const WeightedDataset& weighted : datasets) {
      walks_.emplace_back(weighted, static_cast<uint32_t>(walks_.size()), first_id,
                          SeedOf(walks_.size(), options.seed), options.cut);
      first_id += weighted.dataset->size();
    }
  }

  v1::Batch Make(uint64_t iteration) override {
    v1::Batch batch;
    batch.set_iteration(iteration);
    std::vector<uint64_t> next = order_.TakenBefore(iteration);
    for (const uint32_t task : order_.TasksOf(iteration)) walks_[task].AddSampleAt(next[task]++, batch);
    return batch;
  }

 private:
  const MixtureOrder order_;
  std::vector<Walk> walks_;
};

class RowsInOrder : public BatchSource {
 public:
  RowsInOrder(std::vector<SampleLength> rows, RowRange first, const SampleCut& cut)
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

std::unique_ptr<BatchSource> MixedBatches(const std::vector<WeightedDataset>& datasets,
                                          const ShuffleOptions& options) {
  return std::make_unique<Mixed>(datasets, options);
}

std::unique_ptr<BatchSource> ShuffledBatches(const IndexedDataset& dataset, const ShuffleOptions& options) {
  return MixedBatches({{.dataset = &dataset}}, options);
}

std::unique_ptr<BatchSource> RowBatches(std::vector<SampleLength> rows, RowRange first,
                                        const SampleCut& cut) {
  return std::make_unique<RowsInOrder>(std::move(rows), first, cut);
}

}  // namespace penstock::cli
