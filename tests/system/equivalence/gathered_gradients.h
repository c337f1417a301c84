// Gradients put together from what ranks have of them: stages have parameters of their own, and tensor ranks
// parts of each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/system/equivalence/plain_tensor.h"

namespace penstock::testing {

class GatheredGradients {
 public:
  // `model` has every parameter in its whole shape.
  explicit GatheredGradients(const NamedTensors& model) : model_(model) {}

  // What a rank has written (`penstock-worker --dump-gradients`): whole tensors, and blocks named as in
  // checkpoints. A test failure where something is not of the model, or another rank has other values for the
  // same elements.
  void Add(const NamedTensors& of_rank);

  // By parameter; NaN where no rank had the element. Parameters that nobody had are missing.
  const std::map<std::string, std::vector<double>>& tensors() const { return tensors_; }

 private:
  void AddEntry(const std::string& entry, const PlainTensor& tensor);

  const NamedTensors& model_;
  std::map<std::string, std::vector<double>> tensors_;
};

}  // namespace penstock::testing
