// Attention of rows that are divided over context ranks, or cut between parts: what is exchanged, and what
// queries see of it.
#pragma once

#include "worker/model/attention_shape.h"

namespace penstock::worker {

// Completes the shape of a micro-batch, or of one of its parts, that has divided rows on any rank. `carried`:
// what the part finds of its first row. Tensors are staged for the device.
void DivideShape(const MicroBatch& shape, const ModelConfig& config, const GroupPlace& place,
                 at::Device device, const CarriedRow& carried, AttentionShape& target);

}  // namespace penstock::worker
