// What a parameter does in the model, by its name. Without LibTorch.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace penstock::worker {

// Numbers and meanings as those of ModelPart in the contract; 0: a name that no model has.
enum class ModelPart : uint8_t {
  kNone = 0,
  kEmbedding = 1,
  kAttention = 2,
  kFeedForward = 3,
  kExperts = 4,
  kRouter = 5,
  kNorms = 6,
  kHead = 7,
};
inline constexpr int64_t kModelParts = 8;

// Of a parameter's name (worker/model/parameters.h), an adapter's too.
ModelPart PartOf(absl::string_view parameter);

}  // namespace penstock::worker
