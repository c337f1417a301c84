// What crosses the boundaries between stages.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Before layer `layer` of the model. A decoder-only model, and T5 up to the end of its encoder: one
// activation, [rows, length, hidden] or [tokens, hidden]. Behind T5's first decoder layer: one flat vector of
// the encoder's output and then the decoder's activation. Of a stage group with several ranks: the tokens of
// one of them, [tokens, hidden] in any layout.
bool CarriesBothStreams(const ModelConfig& config, int64_t layer);
std::vector<int64_t> BoundaryShape(const MicroBatch& shape, const ModelConfig& config, int64_t layer,
                                   const GroupPlace& place = {});

// Of `tokens` of a context rank: those of the tensor rank.
int64_t OwnTokens(int64_t tokens, const GroupPlace& place);

}  // namespace penstock::worker
