// Which elements of a model's parameters each rank of a job has in its share, whatever mesh an iteration runs
// on: of every layer the same part, by the rank's weight, so that each rank updates as much as it should
// (Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models", section
// 5, for equal parts; execution.md, section 5).
//
//   const ShareLayout layout(model.layers, job.ShareWeights(),
//                            [&](const StageRange& range, const GroupPlace& place) {
//     return StageParameterSpecs(model, range, place);
//   });
//   FlatParameters share = MakeFlatParameters(layout.SpecsOf(rank), seed, type, device);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "worker/model/parameters.h"
#include "worker/program/group_place.h"

namespace penstock::worker {

// The parameters of a stage of the model, at a place in its group.
using StageSpecs =
    std::function<std::vector<ParameterSpec>(const StageRange& range, const GroupPlace& place)>;

// Elements [begin, end) of a whole parameter, row by row.
struct ElementInterval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

class ShareLayout {
 public:
  // Of a model of so many layers. A layer's parameters lie end to end in the order of their specifications;
  // those in front of the first one, of either stack, count to it, those behind the last one to that. What
  // several stages share is there once, where the first of them has it. `weights`: by rank, how large its
  // part is beside the others'; at least one is not 0. A rank whose weight is 0 has nothing.
  ShareLayout(int64_t layers, const std::vector<uint32_t>& weights, const StageSpecs& specs);

  uint32_t ranks() const { return static_cast<uint32_t>(weights_before_.size() - 1); }
  // Of a rank, and of all together.
  uint64_t WeightOf(uint32_t rank) const { return weights_before_[rank + 1] - weights_before_[rank]; }
  uint64_t all_weights() const { return weights_before_.back(); }
  // Of the parameter with this name, which the model has.
  size_t IndexOf(const std::string& name) const { return indices_.at(name); }
  const std::vector<int64_t>& ShapeOf(size_t parameter) const { return parameters_[parameter].spec.shape; }
  size_t LayerOf(size_t parameter) const { return parameters_[parameter].layer; }
  // Elements of each layer.
  const std::vector<int64_t>& layers() const { return layers_; }
  // What the rank has of the parameter; may be empty.
  ElementInterval Of(size_t parameter, uint32_t rank) const;

  // What the rank has of all parameters, layer by layer; those that it has nothing of are left out. Each is
  // of one dimension and has up to three blocks: the end of a row, whole rows, the beginning of a row.
  std::vector<ParameterSpec> SpecsOf(uint32_t rank) const;

 private:
  // A whole parameter, and where in its layer it begins.
  struct Placed {
    ParameterSpec spec;
    size_t layer = 0;
    int64_t begin = 0;
    int64_t elements = 0;
  };

  void Add(ParameterSpec spec);

  // Of the ranks before each, and of all.
  std::vector<uint64_t> weights_before_ = {0};
  std::vector<int64_t> layers_;
  std::vector<Placed> parameters_;
  std::map<std::string, size_t> indices_;
};

}  // namespace penstock::worker
