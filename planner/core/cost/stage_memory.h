// Bytes of activations that a rank's share of a micro-batch takes: in a layer, and on a stage.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "planner/core/cost/profile.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// What is the same on every stage. Fields mean what they mean in StageMemory.
struct ShareMemory {
  // Searches make very many: without values of its own, which would be set twice.
  struct Layer {
    std::array<int64_t, kRecomputeLevels> stored;
    std::array<int64_t, kRecomputeLevels> peak_at;
    int64_t peak_split;
    // The most of any level.
    int64_t peak;
  };
  // By kind; all 0 of a kind that the model has no layers of.
  std::array<Layer, kStackKinds> layer;
  int64_t stored_head = 0;
  int64_t peak_head = 0;
  int64_t head = 0;
  int64_t gathered = 0;
  int64_t keys_values = 0;
  int64_t carried_keys = 0;
  int64_t rows = 0;
  // Of an activation between stages: of the encoder alone, and of all.
  int64_t encoder_boundary = 0;
  int64_t boundary = 0;
};

// Memory of one rank's share of a micro-batch on one stage, bytes.
struct StageMemory {
  // Kept by one layer, by kind and level.
  std::array<std::array<int64_t, kRecomputeLevels>, kStackKinds> stored_layer = {};
  // Kept by the head of the last stage: the gradient of what the layers gave.
  int64_t stored_head = 0;
  // Exists while one layer runs backward, or the head: the most of any kind and level, which searches reckon
  // with.
  int64_t peak = 0;
  // The same of a layer, by kind and level: what the level keeps need not be made again.
  std::array<std::array<int64_t, kRecomputeLevels>, kStackKinds> peak_layer = {};
  // Of a layer that puts products for weights aside: what it computed with stays until its end.
  std::array<int64_t, kStackKinds> peak_split = {};
  // Of the head alone, and with what it gathers where tensor ranks divide it: it runs in the forward pass of
  // the last stage.
  int64_t peak_head = 0;
  int64_t head = 0;
  // Exists while one layer runs: what is gathered over tensor ranks, and keys and values of divided rows;
  // backward there are their gradients, too.
  int64_t gathered = 0;
  int64_t keys_values = 0;
  // In forward passes: keys and values of rows that are cut between parts, which layers keep for the next
  // one.
  int64_t carried_keys = 0;
  // Rows from other ranks, for this one's experts: there three times while they are sent, received and
  // sorted, forward and backward.
  int64_t rows = 0;
  // Of the whole stage, gathered over tensor ranks: what a split backward pass puts aside beyond what it
  // stored.
  int64_t gathered_operands = 0;
  // Activation that is received, and that is sent, of the tensor rank with the most. 0 at the ends of the
  // pipeline.
  int64_t input = 0;
  int64_t output = 0;
  // Token buffers of LOAD: id and position of every computed token that the stage embeds; on the last stage
  // also place and label of every position that the loss counts.
  int64_t tokens = 0;

  // What comes and goes with a pass, beyond the buffers of transfers. The head runs when all layers have.
  int64_t forward_peak() const { return std::max(forward_exchanged(), head); }
  int64_t forward_exchanged() const { return gathered + keys_values + carried_keys + 3 * rows; }
  // Where no pass back comes: a layer at a time is as when it is recomputed, but for what is carried.
  int64_t forward_alone_peak() const { return std::max(backward_peak(), forward_exchanged()); }
  // The most of any level.
  int64_t backward_peak() const { return WithExchanged(peak); }
  // Of a backward pass whose layers take so much. Where tokens are gathered around a product, or summed
  // behind it, no more than half of a layer's gradients are there, and no keys and values; experts are inside
  // of that.
  int64_t WithExchanged(int64_t layers) const {
    const int64_t attending = layers + 2 * keys_values;
    return rows > 0 ? attending + gathered + 3 * rows : std::max(attending, layers / 2 + gathered);
  }
};

}  // namespace penstock::core
