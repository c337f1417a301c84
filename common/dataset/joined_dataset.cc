#include "common/dataset/joined_dataset.h"

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"

namespace penstock {
namespace {

class Joined final : public IndexedDataset {
 public:
  explicit Joined(std::vector<std::unique_ptr<IndexedDataset>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      first_.push_back(size_);
      size_ += part->size();
    }
  }

  size_t size() const override { return size_; }

  size_t bytes_per_token() const override {
    size_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->bytes_per_token());
    return most;
  }

  SampleLength Length(size_t sample) const override {
    const size_t part = PartOf(sample);
    return parts_[part]->Length(sample - first_[part]);
  }

  absl::StatusOr<std::vector<int32_t>> Tokens(size_t sample) const override {
    const size_t part = PartOf(sample);
    return parts_[part]->Tokens(sample - first_[part]);
  }

  bool has_weights() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->has_weights(); });
  }

  absl::StatusOr<std::vector<float>> TargetWeights(size_t sample) const override {
    const size_t part = PartOf(sample);
    return parts_[part]->TargetWeights(sample - first_[part]);
  }

 private:
  // Of parts without samples, which begin where the next one does, the last one is found, which has some.
  size_t PartOf(size_t sample) const {
    return static_cast<size_t>(std::ranges::upper_bound(first_, sample) - first_.begin()) - 1;
  }

  const std::vector<std::unique_ptr<IndexedDataset>> parts_;
  // Of each part, the id of its first sample.
  std::vector<size_t> first_;
  size_t size_ = 0;
};

}  // namespace

std::unique_ptr<IndexedDataset> Join(std::vector<std::unique_ptr<IndexedDataset>> parts) {
  return std::make_unique<Joined>(std::move(parts));
}

absl::StatusOr<std::unique_ptr<IndexedDataset>> OpenJoined(const std::vector<std::string>& prefixes) {
  std::vector<std::unique_ptr<IndexedDataset>> parts;
  for (const std::string& prefix : prefixes) {
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<IndexedDataset> part, IndexedDataset::Open(prefix));
    parts.push_back(std::move(part));
  }
  return Join(std::move(parts));
}

}  // namespace penstock
