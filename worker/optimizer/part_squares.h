// The sums of squares of gradients by part of the model: which part of it learns how much, as
// torch.nn.utils.get_total_norm would say of each part's parameters.
//
//   const PartSquares squares(stages, shardings);
//   at::Tensor sums = squares.OfGradients();   // [kModelParts]
//
// A rank speaks for some of its parameters, so that each is spoken for once in the job: nothing is exchanged,
// who knows all ranks' sums adds them up.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/model/flat_parameters.h"
#include "worker/model/model_part.h"
#include "worker/optimizer/sharding.h"

namespace penstock::worker {

class PartSquares {
 public:
  // `stages` are those of the rank; they must outlive this object.
  PartSquares(const std::vector<const FlatParameters*>& stages, const Shardings& shardings);

  // Of complete gradients, as the optimizer has them: [kModelParts] float64 by part, on their device; 0 where
  // the rank speaks for none. Throws what LibTorch throws.
  at::Tensor OfGradients() const;

  // Those that it speaks for, ascending.
  const std::vector<ModelPart>& parts() const { return parts_; }

 private:
  // Of a stage's flat gradients.
  struct Run {
    const FlatParameters* stage = nullptr;
    ModelPart part = ModelPart::kNone;
    FlatSpan span = {};
    bool begins_parameter = false;
    bool ends_parameter = false;
  };

  static bool Continues(const Run& run, const Run& next);
  void AddStage(const FlatParameters& stage, const Shardings& shardings);
  void AddRun(const Run& run);

  std::vector<Run> runs_;
  std::vector<ModelPart> parts_;
  at::Device device_ = at::kCPU;
};

}  // namespace penstock::worker
