#include "worker/data/sample_tokens.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

// Whoever fed the batch added them in an order of its own.
constexpr double kRounding = 1e-9;

double SumOf(const std::vector<float>& weights, bool first_counts) {
  double sum = 0;
  for (size_t i = first_counts ? 0 : 1; i < weights.size(); ++i) sum += double{weights[i]};
  return sum;
}

absl::Status OtherWeights(uint64_t sample, const std::string& planned, double weight) {
  return absl::InvalidArgumentError(
      absl::StrCat("sample ", sample, " is planned with ", planned, ", but the dataset's weights add up to ",
                   weight, ": who feeds batches must read the same dataset and set Sample.loss_weight"));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> SampleTokens(const IndexedDataset& dataset, uint64_t sample,
                                                  uint32_t input_tokens, uint32_t target_tokens,
                                                  InputCut cut) {
  if (sample >= dataset.size()) {
    return absl::InvalidArgumentError(absl::StrCat("sample ", sample, " is not in the dataset of ",
                                                   dataset.size(),
                                                   " samples: planner and worker must use the same dataset"));
  }
  const SampleLength length = dataset.Length(sample);
  if (input_tokens > length.input || target_tokens > length.target) {
    return absl::InvalidArgumentError(absl::StrCat("sample ", sample, " is planned with ", input_tokens,
                                                   " + ", target_tokens, " tokens, but the dataset has ",
                                                   length.input, " + ", length.target,
                                                   ": planner and worker must use the same dataset"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, dataset.Tokens(sample));
  const uint32_t surplus = length.input - input_tokens;
  const auto first = tokens.begin() + (cut == InputCut::kStart ? 0 : input_tokens);
  tokens.erase(first, first + surplus);
  tokens.resize(size_t{input_tokens} + target_tokens);
  return tokens;
}

absl::StatusOr<std::vector<float>> SampleWeights(const IndexedDataset& dataset, uint64_t sample,
                                                 uint32_t target_tokens, bool first_counts,
                                                 std::optional<double> planned) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<float> weights, dataset.TargetWeights(sample));
  weights.resize(target_tokens);
  const double sum = SumOf(weights, first_counts);
  if (planned.has_value()) {
    if (std::abs(*planned - sum) <= kRounding * std::max(1.0, sum)) return weights;
    return OtherWeights(sample, absl::StrCat("loss_weight ", *planned), sum);
  }
  if (std::ranges::all_of(weights, [](float weight) { return weight == 1; })) return weights;
  return OtherWeights(sample, "loss_weight unset", sum);
}

}  // namespace penstock::worker
