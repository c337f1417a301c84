#include "worker/model/boundary_streams.h"

#include <ATen/ATen.h>

#include "worker/model/boundary_shape.h"

namespace penstock::worker {

Streams SplitBoundary(const ModelConfig& config, const MicroBatchAttention& attention,
                      const GroupPlace& place, const at::Tensor& boundary, int64_t layer) {
  const at::Tensor rows = boundary.reshape({-1, config.hidden});
  if (config.architecture == Architecture::kGpt) return {{}, rows};
  if (!CarriesBothStreams(config, layer)) return {rows, {}};
  const int64_t source = OwnTokens(attention.source.queries, place);
  return {rows.narrow(0, 0, source), rows.narrow(0, source, OwnTokens(attention.target.queries, place))};
}

at::Tensor JoinStreams(const ModelConfig& config, const MicroBatchAttention& attention,
                       const GroupPlace& place, Streams streams, int64_t layer, at::IntArrayRef sizes) {
  if (config.architecture == Architecture::kGpt) return streams.target.view(sizes);
  if (!CarriesBothStreams(config, layer)) return streams.source.view(sizes);
  if (!streams.source.defined()) {  // no layer behind here looked at it
    streams.source =
        at::zeros({OwnTokens(attention.source.queries, place), config.hidden}, streams.target.options());
  }
  return at::cat({streams.source, streams.target}, 0).view(sizes);
}

}  // namespace penstock::worker
