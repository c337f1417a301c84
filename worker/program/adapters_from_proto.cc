#include "worker/program/adapters_from_proto.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/program/require_positive.h"

namespace penstock::worker {
namespace {

absl::StatusOr<LinearLayer> LinearLayerFromProto(v1::LinearLayer layer) {
  switch (layer) {
    case v1::LINEAR_LAYER_QUERY:
      return LinearLayer::kQuery;
    case v1::LINEAR_LAYER_KEY:
      return LinearLayer::kKey;
    case v1::LINEAR_LAYER_VALUE:
      return LinearLayer::kValue;
    case v1::LINEAR_LAYER_OUTPUT:
      return LinearLayer::kOutput;
    case v1::LINEAR_LAYER_GATE:
      return LinearLayer::kGate;
    case v1::LINEAR_LAYER_UP:
      return LinearLayer::kUp;
    case v1::LINEAR_LAYER_DOWN:
      return LinearLayer::kDown;
    case v1::LINEAR_LAYER_UNSPECIFIED:
      return absl::InvalidArgumentError("model.adapters.targets: unspecified");
    default:
      return absl::UnimplementedError(
          absl::StrCat("model.adapters.targets: this worker does not know layer ", static_cast<int>(layer)));
  }
}

}  // namespace

absl::StatusOr<AdapterConfig> AdaptersFromProto(const v1::Adapters& adapters) {
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(adapters.rank(), "model.adapters.rank"));
  AdapterConfig config = {.rank = adapters.rank()};
  const double rank = adapters.rank();
  const double alpha = adapters.alpha() != 0 ? adapters.alpha() : rank;
  config.scale = alpha / (adapters.rank_stabilised() ? std::sqrt(rank) : rank);
  for (const int layer : adapters.targets()) {
    PENSTOCK_ASSIGN_OR_RETURN(const LinearLayer target,
                              LinearLayerFromProto(static_cast<v1::LinearLayer>(layer)));
    config.targets.push_back(target);
  }
  if (config.targets.empty()) return absl::InvalidArgumentError("model.adapters.targets: there are none");
  return config;
}

}  // namespace penstock::worker
