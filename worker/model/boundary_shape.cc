#include "worker/model/boundary_shape.h"

#include "worker/model/attention_shape.h"

namespace penstock::worker {

bool CarriesBothStreams(const ModelConfig& config, int64_t layer) {
  return config.architecture == Architecture::kT5 && layer > config.encoder_layers;
}

std::vector<int64_t> BoundaryShape(const MicroBatch& shape, const ModelConfig& config, int64_t layer) {
  if (CarriesBothStreams(config, layer)) return {(SourceTokens(shape) + TargetTokens(shape)) * config.hidden};
  const bool source = config.architecture == Architecture::kT5;
  if (shape.layout == Layout::kPacked)
    return {source ? SourceTokens(shape) : TargetTokens(shape), config.hidden};
  return {shape.rows, source ? shape.source_length : shape.target_length, config.hidden};
}

}  // namespace penstock::worker
