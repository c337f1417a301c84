// A forward pass as a sum of what its layers take for being there and for each call of a kernel, for their
// tokens and for the squares of their lengths: parts whose costs can be wrong by factors of their own. And
// what of a backward pass goes by the same, where it has closed forms of its own.
#pragma once

#include <memory>
#include <vector>

#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// What a part is of the forward pass of one kind of layer.
enum class ForwardTerm : uint8_t {
  // With what packed and divided rows take each.
  kFixed,
  kTokens,
  kSquares,
  // All of it: a kind whose times are in tables.
  kWhole,
};

struct ForwardPart {
  LayerKind kind = kDecoder;
  ForwardTerm term = ForwardTerm::kWhole;
};

class ForwardParts {
 public:
  // `costs` must outlive it.
  explicit ForwardParts(const CostModel& costs);

  const std::vector<ForwardPart>& parts() const { return parts_; }

  // One value for each part, and one more for what the stage embeds; nanoseconds. Empty: outside of the
  // profile.
  std::vector<double> Of(int stage, const TokenSums& sums) const;

  // Of one layer, without recompute.
  struct Backward {
    double whole_ns = 0;
    // Of it, gradients of weights.
    double weight_ns = 0;
  };
  bool has_backward(size_t part) const {
    return terms_[part] != nullptr && costs_.profile().layers[parts_[part].kind].backward_forms.has_value();
  }
  Backward BackwardOf(size_t part, const TokenSums& sums) const;

 private:
  // A profile of one term alone.
  struct Term {
    Profile profile;
    std::unique_ptr<LayerModel> model;
  };
  void AddTerms(LayerKind kind);

  const CostModel& costs_;
  std::vector<ForwardPart> parts_;
  // Of the parts that are not whole; null for those.
  std::vector<std::unique_ptr<Term>> terms_;
};

}  // namespace penstock::core
