#include "worker/model/flat_parameters.h"

#include <ATen/ATen.h>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// As LibTorch aligns tensors of their own, which its kernels are fastest with.
constexpr int64_t kAlignmentBytes = 64;

int64_t Elements(const ParameterSpec& spec) { return c10::multiply_integers(spec.shape); }

// Where each parameter begins: first those that this stage alone holds, then the shared ones.
class Places {
 public:
  Places(const std::vector<ParameterSpec>& specs, at::ScalarType type)
      : alignment_(kAlignmentBytes / static_cast<int64_t>(c10::elementSize(type))), offsets_(specs.size()) {
    for (const bool shared : {false, true}) {
      for (size_t i = 0; i < specs.size(); ++i) {
        if (specs[i].shared == shared) Place(specs[i], offsets_[i]);
      }
      if (!shared) spans_.push_back({0, end_});
    }
  }

  int64_t offset(size_t parameter) const { return offsets_[parameter]; }
  int64_t size() const { return end_; }
  const std::vector<FlatSpan>& spans() const { return spans_; }

 private:
  void Place(const ParameterSpec& spec, int64_t& offset) {
    offset = end_;
    if (spec.shared) spans_.push_back({offset, offset + Elements(spec)});
    end_ += (Elements(spec) + alignment_ - 1) / alignment_ * alignment_;
  }

  const int64_t alignment_;
  std::vector<int64_t> offsets_;
  std::vector<FlatSpan> spans_;
  int64_t end_ = 0;
};

}  // namespace

FlatParameters MakeFlatParameters(const std::vector<ParameterSpec>& specs, uint64_t seed, at::ScalarType type,
                                  at::Device device) {
  const Places places(specs, type);
  const at::TensorOptions options = at::TensorOptions(type).device(device);
  FlatParameters flat;
  flat.values = at::zeros({places.size()}, options);
  flat.gradients = at::zeros({places.size()}, options.dtype(AccumulationType(type)));
  flat.spans = places.spans();
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    const int64_t offset = places.offset(i);
    const auto view = [&](const at::Tensor& whole) {
      return whole.narrow(0, offset, Elements(spec)).view(spec.shape);
    };
    flat.parameters.push_back({.name = spec.name,
                               .value = view(flat.values),
                               .gradient = view(flat.gradients),
                               .shared = spec.shared,
                               .copy = spec.copy,
                               .offset = offset});
    flat.parameters.back().value.copy_(InitialValue(spec, seed, type, device));
  }
  return flat;
}

}  // namespace penstock::worker
