#include "planner/cli/up/sample_losses.h"

#include <utility>

#include "common/status/status_macros.h"

namespace penstock::cli {

absl::StatusOr<SampleLosses> ReadSampleLosses(const IndexedDataset& dataset, const SampleCut& cut) {
  SampleLosses losses(dataset.size());
  for (size_t i = 0; i < dataset.size(); ++i) {
    const std::optional<SampleLength> left = CutToLimits(dataset.Length(i), cut.architecture, cut.limits);
    if (!left.has_value()) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> weights, dataset.TargetWeights(i));
    losses[i] = LossOf(*left, cut.architecture, weights);
  }
  return losses;
}

absl::StatusOr<std::shared_ptr<const SampleLosses>> KeptSampleLosses::Of(const IndexedDataset& dataset,
                                                                         const SampleCut& cut) {
  if (!dataset.has_weights() || (cut_.has_value() && *cut_ == cut)) return losses_;
  PENSTOCK_ASSIGN_OR_RETURN(SampleLosses losses, ReadSampleLosses(dataset, cut));
  losses_ = std::make_shared<const SampleLosses>(std::move(losses));
  cut_ = cut;
  return losses_;
}

}  // namespace penstock::cli
