#include "worker/model/flat_parameters.h"

#include <ATen/ATen.h>

#include <utility>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

Holders HoldersOf(const ParameterSpec& spec) {
  return spec.of_expert ? Holders::kOfExperts : Holders::kOfTensorRank;
}

int64_t Elements(const ParameterSpec& spec) { return c10::multiply_integers(spec.own_part().shape); }

// Where each parameter begins: first those that this stage alone holds, then the shared ones.
class Places {
 public:
  Places(const std::vector<ParameterSpec>& specs, at::ScalarType type, int64_t bucket_elements)
      : alignment_(kParameterAlignmentBytes / static_cast<int64_t>(c10::elementSize(type))),
        offsets_(specs.size()) {
    FlatSpan bucket;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].shared) continue;
      const Holders holders = HoldersOf(specs[i]);
      const bool large = end_ > bucket.begin && end_ - bucket.begin >= bucket_elements;
      if ((specs[i].begins_layer && large) || holders != bucket.holders) {
        bucket.end = end_;
        spans_.push_back(std::exchange(bucket, {.begin = end_, .holders = holders}));
      }
      Place(specs[i], offsets_[i]);
    }
    bucket.end = end_;
    spans_.push_back(bucket);
    buckets_ = spans_.size();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].shared) continue;
      spans_.push_back({end_, end_ + Elements(specs[i])});
      Place(specs[i], offsets_[i]);
    }
  }

  int64_t offset(size_t parameter) const { return offsets_[parameter]; }
  int64_t size() const { return end_; }
  const std::vector<FlatSpan>& spans() const { return spans_; }
  size_t buckets() const { return buckets_; }

 private:
  // With the room that the tensor rank with most of it takes: all have the same places. Gradients are then
  // summed in the same order over the replicas, and what several tensor ranks have stays equal in every bit.
  void Place(const ParameterSpec& spec, int64_t& offset) {
    offset = end_;
    end_ += (spec.own_part().most_elements + alignment_ - 1) / alignment_ * alignment_;
  }

  const int64_t alignment_;
  std::vector<int64_t> offsets_;
  std::vector<FlatSpan> spans_;
  size_t buckets_ = 0;
  int64_t end_ = 0;
};

// Whose gradient is `gradient`, undefined or a view of a flat buffer.
NamedParameter MakeParameter(const ParameterSpec& spec, int64_t offset, const at::Tensor& value,
                             const at::Tensor& gradient) {
  return {.name = spec.name,
          .value = value,
          .gradient = gradient,
          .shared = spec.shared,
          .copy = spec.copy,
          .offset = offset,
          .part = spec.own_part(),
          .holders = HoldersOf(spec)};
}

at::Tensor ViewOf(const ParameterSpec& spec, int64_t offset, const at::Tensor& flat_buffer) {
  return flat_buffer.narrow(0, offset, Elements(spec)).view(spec.own_part().shape);
}

}  // namespace

FlatParameters MakeFlatParameters(const std::vector<ParameterSpec>& specs, std::optional<uint64_t> seed,
                                  at::ScalarType type, at::Device device, int64_t bucket_bytes) {
  const auto gradient_bytes = static_cast<int64_t>(c10::elementSize(AccumulationType(type)));
  const Places places(specs, type, bucket_bytes / gradient_bytes);
  const at::TensorOptions options = at::TensorOptions(type).device(device);
  FlatParameters flat;
  flat.values = at::zeros({places.size()}, options);
  flat.gradients = at::zeros({places.size()}, options.dtype(AccumulationType(type)));
  flat.spans = places.spans();
  flat.buckets = places.buckets();
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    const int64_t offset = places.offset(i);
    flat.parameters.push_back(
        MakeParameter(spec, offset, ViewOf(spec, offset, flat.values), ViewOf(spec, offset, flat.gradients)));
    if (seed.has_value()) flat.parameters.back().value.copy_(InitialValue(spec, *seed, type, device));
  }
  return flat;
}

void AddFrozenParameters(const std::vector<ParameterSpec>& specs, std::optional<uint64_t> seed,
                         at::ScalarType type, at::Device device, FlatParameters* flat) {
  const Places places(specs, type, /*bucket_elements=*/0);
  flat->frozen_values = at::zeros({places.size()}, at::TensorOptions(type).device(device));
  for (size_t i = 0; i < specs.size(); ++i) {
    const int64_t offset = places.offset(i);
    flat->frozen.push_back(
        MakeParameter(specs[i], offset, ViewOf(specs[i], offset, flat->frozen_values), /*gradient=*/{}));
    if (seed.has_value()) flat->frozen.back().value.copy_(InitialValue(specs[i], *seed, type, device));
  }
}

}  // namespace penstock::worker
