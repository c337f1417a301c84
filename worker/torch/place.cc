#include "worker/torch/place.h"

#include "absl/strings/str_cat.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {

absl::StatusOr<at::Device> PlaceOf(const std::string& name) {
  const absl::StatusOr<at::Device> place =
      CallTorch(absl::StrCat("--device ", name), [&] { return at::Device(name); });
  if (!place.ok()) return absl::InvalidArgumentError(place.status().message());
  return place->is_cpu() || place->has_index() ? *place : at::Device(place->type(), 0);
}

}  // namespace penstock::worker
