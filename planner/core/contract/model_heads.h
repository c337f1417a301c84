// Attention heads of a model, with the defaults of job.proto filled in.
#pragma once

#include <cstdint>

#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Of queries: elements of one head.
inline uint32_t HeadWidth(const v1::ModelSpec& model) {
  return (model.attention_inner() == 0 ? model.hidden() : model.attention_inner()) / model.heads();
}

inline uint32_t KeyValueHeads(const v1::ModelSpec& model) {
  return model.key_value_heads() > 0 ? model.key_value_heads() : model.heads();
}

}  // namespace penstock::core
