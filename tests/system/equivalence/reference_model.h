// What the references of the model families have in common. Used by reference*.cc alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/system/equivalence/reference.h"

namespace penstock::testing {

using ReferenceParameters = std::map<std::string, at::Tensor>;

// x [n, in] times the transposed weight [out, in], plus the bias where the model has one.
at::Tensor Linear(const at::Tensor& x, const ReferenceParameters& p, const std::string& name);

// A feed-forward part, "layers.0.ffn"; x is normalised.
at::Tensor FeedForward(const at::Tensor& x, const ReferenceParameters& p, const std::string& name,
                       const ReferenceModel& model);

// RMS norm (Zhang and Sennrich 2019) over the last dimension.
at::Tensor RmsNorm(const at::Tensor& x, const ReferenceParameters& p, const std::string& name);

// A token of a row, with its position in its sample, from 0.
struct RowTokens {
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;
  void Append(const std::vector<int32_t>& sample);
};

// A position of a row whose logits predict a token that the loss counts.
struct LossPosition {
  int64_t position = 0;
  int64_t label = 0;
  double weight = 1;
};

// Of a token of the sample's target.
inline double WeightOf(const ReferenceSample& sample, size_t token) {
  return sample.weights.empty() ? 1 : double{sample.weights[token]};
}

// Sum of the cross entropy over the positions, each times its weight. logits: [n, vocab].
at::Tensor CrossEntropy(const at::Tensor& logits, const std::vector<LossPosition>& positions);

struct GptLosses {
  // Sum of the cross entropy over the row's loss positions.
  at::Tensor cross_entropy;
  // Losses of routers, each sample's times its tokens; undefined where the model has none.
  at::Tensor of_routers;
};
// Undefined where the row has no loss positions and no losses of routers.
GptLosses GptRowLosses(const ReferenceRow& row, const ReferenceParameters& p, const ReferenceModel& model);
// Sum of the cross entropy over the row's loss positions; undefined where it has none.
at::Tensor T5RowLoss(const ReferenceRow& row, const ReferenceParameters& p, const ReferenceModel& model);

// Sum of the weights of a sample's loss positions.
double GptLossWeight(const ReferenceSample& sample);
double T5LossWeight(const ReferenceSample& sample);

}  // namespace penstock::testing
