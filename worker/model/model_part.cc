#include "worker/model/model_part.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace penstock::worker {
namespace {

// A component of a name says what it is of, the first one that does: layers.3.attention.query_norm.weight is
// of a norm, so norms are asked for first.
bool IsOfNorm(absl::string_view parameter) {
  for (const absl::string_view component : absl::StrSplit(parameter, '.'))
    if (absl::EndsWith(component, "norm")) return true;
  return false;
}

}  // namespace

ModelPart PartOf(absl::string_view parameter) {
  if (IsOfNorm(parameter)) return ModelPart::kNorms;
  for (const absl::string_view component : absl::StrSplit(parameter, '.')) {
    if (component == "embedding") return ModelPart::kEmbedding;
    if (component == "head") return ModelPart::kHead;
    if (component == "attention" || component == "cross" || component == "relative_bias")
      return ModelPart::kAttention;
    if (component == "router") return ModelPart::kRouter;
    if (component == "experts") return ModelPart::kExperts;
  }
  const bool dense = absl::StrContains(parameter, ".ffn.");
  return dense ? ModelPart::kFeedForward : ModelPart::kNone;
}

}  // namespace penstock::worker
