#include "worker/model/boundary_shape.h"

#include "worker/comm/shard.h"
#include "worker/model/attention_shape.h"

namespace penstock::worker {

bool CarriesBothStreams(const ModelConfig& config, int64_t layer) {
  return config.architecture == Architecture::kT5 && layer > config.encoder_layers;
}

int64_t OwnTokens(int64_t tokens, const GroupPlace& place) {
  return ShardOf(tokens, place.tensor, place.tensors).size();
}

std::vector<int64_t> BoundaryShape(const MicroBatch& shape, const ModelConfig& config, int64_t layer,
                                   const GroupPlace& place) {
  const int64_t source_tokens = OwnTokens(SourceTokens(shape, place), place);
  const int64_t target_tokens = OwnTokens(TargetTokens(shape, place), place);
  if (CarriesBothStreams(config, layer)) return {(source_tokens + target_tokens) * config.hidden};
  const bool source = config.architecture == Architecture::kT5;
  if (shape.layout == Layout::kPacked || place.ranks() > 1) {
    return {source ? source_tokens : target_tokens, config.hidden};
  }
  return {shape.rows, source ? shape.source_length : shape.target_length, config.hidden};
}

}  // namespace penstock::worker
